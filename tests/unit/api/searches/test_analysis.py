"""What the noise of a search is taken from: trainings in the database, or a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.searches.analysis import known_noise
from kdnas.db.engine import Database
from kdnas.db.exploration import losses
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import searches
from kdnas.records import (
    KnownLosses,
    Losses,
    LossName,
    MiniKDContext,
    MiniKDResult,
    NewCandidate,
    Proposal,
)
from kdnas.search.analysis.noise import KnownNoise
from kdnas.search_space import SearchSpace
from kdnas.specs.load import load_preset
from kdnas.specs.search import SearchSpec
from kdnas.tabular.card import noise_after
from kdnas.tabular.files import named_table, packaged_cards

STATES = SearchSpace.paper().states


def context_like(table: str, **proxy: Any) -> MiniKDContext:
    """The context of a search whose trainings are those of a table, with these lengths and seed."""
    card = packaged_cards()[table]["context"]
    return MiniKDContext(**{**card, "proxy": {**card["proxy"], "epochs": 4.0, **proxy}})


def train(database: Database, context: MiniKDContext, loss: float, num_states: int = 1) -> None:
    found = Losses(loss, loss, loss, loss)
    with database.write() as session:
        name = losses.save_context(session, context)
        for architecture in STATES[:num_states]:
            result = MiniKDResult("", architecture, found, None, 60, 1.0)
            losses.add_losses(session, name, result, found)


def search_in(database: Database, context: MiniKDContext) -> str:
    """A search with one student, looked up in this context."""
    train(database, context, 0.3)
    with database.write() as session:
        search_id = searches.create_search(session, {}).id
    asked = [NewCandidate(Proposal(0, "random"), STATES[0], 1.0, 0.1, 1.0)]
    journal = DatabaseJournal(database)
    (candidate,) = journal.begin_episode(search_id, 1, None, None, None, asked).candidates
    journal.reuse_losses(candidate.id, KnownLosses(Losses(0.3, 0.3, 0.3, 0.3)), 0.5, None)
    return search_id


def noise(database: Database, search_id: str, loss: LossName = "relative") -> KnownNoise | None:
    with database.read() as session:
        return known_noise(session, searches.get_search(session, search_id), loss)


@pytest.mark.parametrize(("table", "steps"), [("minilm", 60), ("minilm-rungs", 480)])
def test_a_table_of_such_trainings_tells_it(database: Database, table: str, steps: int) -> None:
    search_id = search_in(database, context_like(table, steps=steps, seed=7))
    for loss in ("relative", "output", "mean"):
        known = noise(database, search_id, loss)
        of_table = noise_after(named_table(table), steps, loss)
        assert known is not None
        assert of_table is not None
        assert known == KnownNoise(of_table.sd, of_table.dof, of_table.num_states, table)
        assert 0 < known.sd < 0.1


@pytest.mark.parametrize(
    "other",
    [
        context_like("minilm", steps=61, seed=0),
        context_like("minilm", steps=None, seed=0),
        context_like("minilm", steps=60, seed=0, batch_size=32),
        context_like("minilm-wikitext", steps=60, seed=0),  # it has one seed
        replace(context_like("minilm", steps=60, seed=0), teacher="another"),
        replace(context_like("minilm", steps=60, seed=0), dtype="bfloat16"),
        replace(context_like("minilm", steps=60, seed=0), engine_version="0"),
    ],
)
def test_of_other_trainings_no_table_says_anything(
    database: Database, other: MiniKDContext
) -> None:
    assert noise(database, search_in(database, other)) is None


def test_who_has_more_degrees_of_freedom_tells_it(database: Database) -> None:
    own = context_like("minilm-rungs", steps=480, seed=7)
    search_id = search_in(database, own)
    again = replace(own, proxy={**own.proxy, "seed": 8})
    train(database, again, 0.32)
    known = noise(database, search_id)
    assert known is not None
    assert (known.table, known.dof) == ("minilm-rungs", 200)
    for context in (own, again, replace(own, proxy={**own.proxy, "seed": 9})):
        train(database, context, 0.32, num_states=101)
    known = noise(database, search_id)
    assert known is not None
    assert (known.table, known.dof) == (None, 202)


def test_the_preset_laptop_trains_as_a_table_does() -> None:
    asked = {**load_preset("laptop", "search"), "teacher": "minilm", "corpus": "pydocs"}
    spec, card = SearchSpec.model_validate(asked), packaged_cards()["minilm"]
    context, proxy = card["context"], spec.to_json()["proxy"]
    assert spec.proxy.steps == 60
    assert spec.objective.context() == context["objective"]
    assert spec.student.to_json() == context["student"]
    assert {name: proxy[name] for name in context["proxy"]} == context["proxy"]
    assert [card["teacher"], *card["corpus"]] == [spec.teacher.ref, *spec.corpus.source]

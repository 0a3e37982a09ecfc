"""Which trainings tell of the noise of a search: all that differ from its own in the seed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from kdnas.architecture import Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import losses
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import searches
from kdnas.records import (
    KnownLosses,
    Losses,
    MiniKDContext,
    MiniKDResult,
    NewCandidate,
    Proposal,
)

SMALL, LARGE = Architecture.parse("3,4,288,512,gelu"), Architecture.parse("4,4,288,512,gelu")


def context(teacher: str = "t", **proxy: object) -> MiniKDContext:
    asked = {"seed": 0, "steps": 60, "epochs": 4.0, "fraction": 0.3, **proxy}
    return MiniKDContext(teacher, "c", {"name": "hs"}, {"init": "teacher"}, asked, "float32", "1")


def found(value: float) -> Losses:
    return Losses(value, value, value, value)


def train(session: Session, where: MiniKDContext, architecture: Architecture, loss: float) -> None:
    result = MiniKDResult("", architecture, found(loss), None, 60, 1.0)
    losses.add_losses(session, losses.save_context(session, where), result, found(loss))


def new_search(database: Database, *architectures: Architecture) -> tuple[str, list[str]]:
    with database.write() as session:
        search_id = searches.create_search(session, {}).id
    proposed = [
        NewCandidate(Proposal(i, "random"), architecture, 1.0, 0.1, 1.0)
        for i, architecture in enumerate(architectures)
    ]
    journal = DatabaseJournal(database)
    episode = journal.begin_episode(search_id, 1, None, None, None, proposed)
    return search_id, [candidate.id for candidate in episode.candidates]


def by_seed(database: Database, search_id: str) -> dict[str, list[Losses]]:
    with database.read() as session:
        return losses.losses_by_seed(session, search_id)


def context_of(database: Database, search_id: str) -> Mapping[str, object] | None:
    with database.read() as session:
        return losses.context_of(session, search_id)


def test_trainings_with_another_seed_alone_count(database: Database) -> None:
    search_id, (first,) = new_search(database, SMALL)
    assert by_seed(database, search_id) == {}
    assert context_of(database, search_id) is None
    journal, own = DatabaseJournal(database), context()
    journal.start_attempt([first], "worker")
    result = MiniKDResult(first, SMALL, found(0.30), None, 60, 1.0)
    journal.finish_candidate(first, own.fingerprint, result, 0.5, None)
    assert by_seed(database, search_id) == {}  # nobody has said what the context stands for
    assert context_of(database, search_id) is None

    with database.write() as session:
        train(session, own, SMALL, 0.31)  # a repeat of the same seed
        train(session, context(seed=1), SMALL, 0.32)
        train(session, context(seed=2, epochs=9.0), LARGE, 0.40)  # beside steps they mean nothing
        train(session, context(seed=3, steps=61), SMALL, 0.50)
        train(session, context(seed=3, teacher="other"), SMALL, 0.50)
        train(session, replace(context(seed=3), dtype="bfloat16"), SMALL, 0.50)
    assert context_of(database, search_id) == asdict(own)
    assert by_seed(database, search_id) == {
        str(SMALL): [found(0.30), found(0.32)],
        str(LARGE): [found(0.40)],
    }


def test_epochs_count_where_they_are_the_length(database: Database) -> None:
    search_id, (first,) = new_search(database, SMALL)
    own = context(steps=None)
    with database.write() as session:
        losses.save_context(session, own)
        train(session, context(steps=None, epochs=9.0, seed=1), SMALL, 0.4)
        train(session, context(steps=None, seed=1), SMALL, 0.5)
    journal = DatabaseJournal(database)
    journal.start_attempt([first], "worker")
    result = MiniKDResult(first, SMALL, found(0.30), None, 60, 1.0)
    journal.finish_candidate(first, own.fingerprint, result, 0.5, None)
    assert sorted(s.relative for s in by_seed(database, search_id)[str(SMALL)]) == [0.3, 0.5]


def test_a_search_that_looked_everything_up_finds_the_same(database: Database) -> None:
    with database.write() as session:
        train(session, context(), SMALL, 0.30)
        train(session, context(seed=1), SMALL, 0.33)
        train(session, context(teacher="other"), SMALL, 0.60)
        newest = losses.newest_losses(session)
    search_id, (first,) = new_search(database, SMALL)
    DatabaseJournal(database).reuse_losses(first, KnownLosses(found(0.30)), 0.5, None)
    assert by_seed(database, search_id) == {str(SMALL): [found(0.30), found(0.33)]}
    with database.write() as session:
        train(session, context(seed=2), SMALL, 0.31)
        assert losses.newest_losses(session) > newest

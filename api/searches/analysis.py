"""How sure the figures of a stored search are, read together and found once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any, cast

from api.searches.remembered import explored_states, remembered
from kdnas.architecture import Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import explored, losses
from kdnas.db.repository import latencies, searches
from kdnas.records import LossName, SearchRecord
from kdnas.search.analysis.findings import analyse
from kdnas.search.analysis.noise import KnownNoise, Noise, noise_of
from kdnas.search.analysis.words import in_words
from kdnas.search.reward import RewardFunction
from kdnas.search_space import SearchSpace
from kdnas.specs.search import Goal, RewardSpec
from kdnas.tabular.card import context_of_all, noise_after
from kdnas.tabular.files import named_table, packaged_cards


def known_noise(session: Session, record: SearchRecord, loss: LossName) -> KnownNoise | None:
    """Noise of a loss between seeds, of trainings that differ from a search's in the seed alone.

    From all those in the database, or from a table that comes with the program if it knows more.
    """

    def find() -> KnownNoise | None:
        trained = losses.losses_by_seed(session, record.id).values()
        # One that has not learned is no success: how far it is off says nothing of the others.
        own = noise_of([[s.named(loss) for s in seeds if s.output < 1] for seeds in trained])
        context = losses.context_of(session, record.id)
        found = [(None, own), *(() if context is None else _noises_of_tables(context, loss))]
        known = [KnownNoise(n.sd, n.dof, n.num_states, table) for table, n in found if n]
        return max(known, key=lambda noise: noise.dof, default=None)

    # Others write in the look-up table as well, without an event of this search.
    newest = losses.newest_losses(session)
    return remembered(session, record.id, ("noise", loss, newest), find)


def analysis_of(session: Session, record: SearchRecord) -> dict[str, Any]:
    """Find out how sure the figures of a search are; takes seconds."""
    reward = RewardSpec.read(record.spec.get("reward", {}), "reward")
    goal = cast(Goal, record.spec.get("goal", "reward"))
    states = explored_states(session, record.id)
    found = analyse(
        states,
        explored.finished_episodes(session, record.id),
        RewardFunction.from_spec(reward.under(goal)),
        goal,
        known_noise(session, record, reward.loss),
        _ratios(session, record.id),
    )
    return {
        "loss": reward.loss,
        "num_states": len(states),
        "sentences": in_words(found, goal, len(states), record.spec.get("proxy", {}).get("steps")),
        **asdict(found),
    }


def analysis_lines(reference: str, database: Database) -> list[str]:
    """Say how sure the figures of a search are, in the words of the service.

    Raises:
        NotFoundError: no such search.
    """
    with database.read() as session:
        found = analysis_of(session, searches.get_search(session, reference))
    lines: list[str] = found["sentences"]
    return lines


def _noises_of_tables(context: Mapping[str, Any], loss: LossName) -> list[tuple[str, Noise | None]]:
    """What the tables of such trainings say, by name."""
    steps, shared = context["proxy"].get("steps"), context_of_all(context)
    alike = [name for name, of_table in _contexts_of_tables().items() if of_table == shared]
    return [] if steps is None else [(name, _noise_of_table(name, steps, loss)) for name in alike]


@cache
def _contexts_of_tables() -> dict[str, Mapping[str, Any]]:
    return {name: card["context"] for name, card in packaged_cards().items()}


@cache
def _noise_of_table(name: str, steps: int, loss: LossName) -> Noise | None:
    return noise_after(named_table(name), steps, loss)


def _ratios(session: Session, search_id: str) -> dict[Architecture, float] | None:
    """Latency of each allowed state as a share of the teacher's; None if not all are known."""
    facts = searches.search_facts(session, search_id)
    if facts is None:
        return None
    table = latencies.load_latency_table(
        session, facts.latency_profile, facts.family, facts.teacher_fingerprint
    )
    space = replace(SearchSpace.from_axes(facts.axes), head_multiple=facts.head_multiple)
    indices = range(len(space)) if facts.allowed is None else facts.allowed
    allowed = [space[index] for index in indices]
    if table is None or any(str(state) not in table.entries for state in allowed):
        return None
    return {s: table.entries[str(s)].latency_ms / table.teacher_ms for s in allowed}

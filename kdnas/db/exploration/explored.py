"""The states of a search, each once: a few thousand rows, whatever the number of candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlalchemy.orm import Session

from kdnas.db.models import Candidate, Episode, Event, SearchState
from kdnas.records import ExploredState, Losses, StateCounts


def explored_states(session: Session, search_id: str) -> list[ExploredState]:
    """States that have a reward, in the order of their index."""
    columns: list[Any] = [
        Candidate.id,
        Candidate.state_index,
        Candidate.architecture,
        Candidate.source,
        Candidate.episode,
        Candidate.predicted_reward,
        Candidate.reward,
        Candidate.loss_training,
        Candidate.loss_mean,
        Candidate.loss_relative,
        Candidate.loss_output,
        Candidate.latency_ms,
        Candidate.latency_ratio,
        Candidate.params_millions,
        Candidate.loss_start,
    ]
    query = (
        select(*columns)
        .join(SearchState, SearchState.candidate_id == Candidate.id)
        .where(SearchState.search_id == search_id)
        .order_by(SearchState.state_index)
    )
    rows: Iterable[Any] = session.execute(query)
    return [ExploredState(*(*row[:7], Losses(*row[7:11]), *row[11:])) for row in rows]


def finished_episodes(session: Session, search_id: str) -> set[int]:
    """Numbers of the episodes of a search that have ended."""
    query = select(Episode.number).where(
        Episode.search_id == search_id, Episode.finished_at.is_not(None)
    )
    return set(session.scalars(query))


def newest_event(session: Session, search_id: str) -> int:
    """Id of a search's newest event, or 0: while it is the same, its states are."""
    return session.scalar(select(func.max(Event.id)).where(Event.job_id == search_id)) or 0


def state_counts(session: Session, search_id: str) -> StateCounts:
    """How many states were explored, and how."""
    succeeded = SearchState.candidate_id.is_not(None)
    row = session.execute(
        select(
            _number(or_(succeeded, SearchState.failed, SearchState.stopped)),
            _number(SearchState.trained.is_(True)),
            _number(and_(succeeded, SearchState.trained.is_(False))),
            _number(and_(~succeeded, SearchState.failed)),
            func.coalesce(func.sum(SearchState.num_attempts), 0),
            _number(SearchState.stopped.is_(True)),
        ).where(SearchState.search_id == search_id)
    ).one()
    counts = StateCounts(*map(int, row))
    return (
        replace(counts, steps_saved=_steps_saved(session, search_id)) if counts.stopped else counts
    )


def _steps_saved(session: Session, search_id: str) -> float | None:
    """As ``kdnas.search.rungs.steps_saved`` has it of the candidates themselves."""
    query = select(
        func.coalesce(func.sum(Candidate.num_steps), 0),
        func.count(),
        func.max(case((Candidate.status == "succeeded", Candidate.num_steps))),
    ).where(
        Candidate.search_id == search_id,
        Candidate.status.in_(("succeeded", "stopped")),
        Candidate.num_steps.is_not(None),
    )
    made, trained, whole = session.execute(query).one()
    return 1 - made / (trained * whole) if whole else None


def tried_states(session: Session, search_id: str) -> list[tuple[str, int]]:
    """Every state that was proposed: architecture, and how many candidates had it."""
    query = (
        select(SearchState.architecture, SearchState.num_candidates)
        .where(SearchState.search_id == search_id)
        .order_by(SearchState.state_index)
    )
    return [(architecture, count) for architecture, count in session.execute(query)]


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

"""Episodes, candidates and attempts of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session, selectinload

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import new_id, utc_now
from kdnas.db.exploration.losses import add_losses
from kdnas.db.exploration.search_states import note_attempts, note_finished, note_proposed
from kdnas.db.models import Attempt, Candidate, ControllerState, Episode
from kdnas.db.readings import reading_of, reading_row
from kdnas.db.records import record_of
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import locked_job, require_job
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import CANDIDATE_ENDS, KnownLosses, MiniKDResult, NewCandidate

_TOLD = (
    "episode",
    "position",
    "architecture",
    "source",
    "status",
    "reused",
    "loss_relative",
    "latency_ms",
    "reward",
    "num_steps",
    "error",
    "note",
)
"""Columns of a candidate that the event of its end says."""


def begin_episode(
    session: Session,
    search_id: str,
    number: int,
    epsilon: float | None,
    global_best: int | None,
    previous_best: int | None,
    candidates: Sequence[NewCandidate],
) -> records.Episode:
    """Write an episode and its candidates, with an event.

    Raises:
        NotFoundError: no such search.
        ConflictError: the number is not the next one, or the last episode is not finished.
    """
    locked_job(session, search_id)
    past = session.scalars(select(Episode.finished_at).where(Episode.search_id == search_id)).all()
    if number != len(past) + 1 or None in past:
        raise ConflictError(
            f"episode {number} of search {search_id} cannot begin: the search has {len(past)} "
            f"episodes, {past.count(None)} of them unfinished; finish them, and begin "
            f"{len(past) + 1}"
        )
    row = Episode(
        search_id=search_id,
        number=number,
        epsilon=epsilon,
        global_best=global_best,
        previous_best=previous_best,
        candidates=[
            Candidate(
                id=new_id(),
                position=position,
                state_index=new.proposal.index,
                architecture=str(new.architecture),
                **asdict(new.architecture),
                source=new.proposal.source,
                predicted_reward=new.proposal.predicted_reward,
                status="proposed",
                latency_ms=new.latency_ms,
                latency_ratio=new.latency_ratio,
                params_millions=new.params_millions,
            )
            for position, new in enumerate(candidates)
        ],
    )
    session.add(row)
    note_proposed(session, search_id, row.candidates)
    payload = {"episode": number, "epsilon": epsilon, "num_candidates": len(candidates)}
    append_event(session, "episode_started", payload, job_id=search_id)
    return _episode(row)


def end_episode(
    session: Session,
    search_id: str,
    number: int,
    controller_loss: float | None,
    controller_state: bytes,
) -> records.Episode:
    """Close an episode together with the strategy's new state, with an event.

    Raises:
        NotFoundError: no such search or episode.
        ConflictError: the episode is finished.
    """
    locked_job(session, search_id)
    row = session.get(Episode, (search_id, number))
    if row is None:
        raise NotFoundError(f"search {search_id} has no episode {number}; begin it first")
    if row.finished_at is not None:
        raise ConflictError(f"episode {number} of search {search_id} is already finished")
    row.finished_at, row.controller_loss = utc_now(), controller_loss
    session.merge(
        ControllerState(
            search_id=search_id, episode=number, state=controller_state, created_at=utc_now()
        )
    )
    payload = {"episode": number, "controller_loss": controller_loss}
    append_event(session, "episode_finished", payload, job_id=search_id)
    return _episode(row)


def list_episodes(session: Session, search_id: str) -> list[records.Episode]:
    """All episodes in order with their candidates, in two reads.

    Raises:
        NotFoundError: no such search.
    """
    require_job(session, search_id)
    query = select(Episode).where(Episode.search_id == search_id).order_by(Episode.number)
    return [
        _episode(row) for row in session.scalars(query.options(selectinload(Episode.candidates)))
    ]


def controller_state(session: Session, search_id: str) -> bytes | None:
    """The strategy's state after the last finished episode.

    Raises:
        NotFoundError: no such search.
    """
    require_job(session, search_id)
    return session.scalar(
        select(ControllerState.state).where(ControllerState.search_id == search_id)
    )


def start_attempts(session: Session, candidate_ids: Sequence[str], worker: str) -> None:
    """Note that a worker began to train these candidates, with an event.

    An attempt that is still open (its driver died without a word) is closed as interrupted.

    Raises:
        NotFoundError: one of the candidates is not there.
        ConflictError: one of them is already done.
    """
    rows = _unfinished(session, candidate_ids)
    _close_attempts(session, candidate_ids, "interrupted", "another attempt began")
    for row in rows:
        row.status = "running"
        row.num_attempts += 1
    session.add_all([Attempt(candidate_id=row.id, worker=worker) for row in rows])
    note_attempts(session, rows)
    _append_for_group(session, "attempts_started", rows, {"worker": worker})


def interrupt_attempts(session: Session, candidate_ids: Sequence[str], reason: str) -> None:
    """Close open attempts with a reason; their candidates are proposed again, with an event.

    Candidates without an open attempt are left as they are.

    Raises:
        NotFoundError: one of the candidates is not there.
    """
    rows = [row for row in _locked(session, candidate_ids) if row.status == "running"]
    _close_attempts(session, [row.id for row in rows], "interrupted", reason)
    for row in rows:
        row.status = "proposed"
    _append_for_group(session, "attempts_interrupted", rows, {"reason": reason})


def close_open_attempts(session: Session, search_id: str, reason: str) -> int:
    """Interrupt whatever a dead driver of the search left open; returns how many that were."""
    require_job(session, search_id)
    left = session.scalars(
        select(Candidate.id).where(Candidate.search_id == search_id, Candidate.status == "running")
    ).all()
    interrupt_attempts(session, left, reason)
    return len(left)


def finish_candidate(
    session: Session,
    candidate_id: str,
    context: str,
    result: MiniKDResult,
    reward: float | None,
    note: str | None,
) -> records.Candidate:
    """Store a result: losses in the look-up table, the candidate, its attempt, an event.

    Losses are kept also where ``result.error`` says why the candidate failed all the same. Of one
    that was stopped nothing enters the look-up table.

    Raises:
        NotFoundError: no such candidate.
        ConflictError: it is already done.
    """
    (row,) = _unfinished(session, [candidate_id])
    status = "stopped" if result.stopped else "succeeded" if result.succeeded else "failed"
    if result.losses is not None:
        row.distillation_loss_id = add_losses(session, context, result, result.losses)
        row.losses = result.losses
    row.loss_start, row.error = result.loss_start, result.error
    row.readings = [reading_row(reading) for reading in result.readings] or None
    row.num_steps = result.steps
    _close_attempts(session, [candidate_id], status, result.error)
    return _finish(session, row, status, reward, note)


def reuse_losses(
    session: Session,
    candidate_id: str,
    known: KnownLosses,
    reward: float | None,
    note: str | None,
    error: str | None = None,
) -> records.Candidate:
    """Finish a candidate with losses that were known before, with an event.

    With an error it has failed, as one that was trained and has not learned.

    Raises:
        NotFoundError: no such candidate.
        ConflictError: it is already done.
    """
    (row,) = _unfinished(session, [candidate_id])
    row.reused, row.error = True, error
    row.losses, row.loss_start = known.losses, known.loss_start
    return _finish(session, row, "failed" if error else "succeeded", reward, note)


def _locked(session: Session, candidate_ids: Sequence[str]) -> list[Candidate]:
    """Rows in the order given; they are locked in the order of their ids, against deadlocks."""
    query = (
        select(Candidate)
        .where(Candidate.id.in_(candidate_ids))
        .order_by(Candidate.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    found = {row.id: row for row in session.scalars(query)}
    missing = [candidate_id for candidate_id in candidate_ids if candidate_id not in found]
    if missing:
        raise NotFoundError(f"there is no candidate {missing[0]!r}; list its search's candidates")
    return [found[candidate_id] for candidate_id in candidate_ids]


def _unfinished(session: Session, candidate_ids: Sequence[str]) -> list[Candidate]:
    rows = _locked(session, candidate_ids)
    for row in rows:
        if row.status in CANDIDATE_ENDS:
            raise ConflictError(f"candidate {row.id} is done: {row.status}")
    return rows


def _close_attempts(
    session: Session, candidate_ids: Sequence[str], outcome: str, error: str | None
) -> None:
    session.execute(
        update(Attempt)
        .where(Attempt.candidate_id.in_(candidate_ids), Attempt.finished_at.is_(None))
        .values(outcome=outcome, error=error, finished_at=utc_now())
    )


def _finish(
    session: Session, row: Candidate, status: str, reward: float | None, note: str | None
) -> records.Candidate:
    row.status, row.reward, row.note, row.finished_at = status, reward, note, utc_now()
    session.flush()
    note_finished(session, row)
    payload = {"candidate": row.id, **{name: getattr(row, name) for name in _TOLD}}
    append_event(session, "candidate_finished", payload, job_id=row.search_id)
    return _record(row)


def _append_for_group(
    session: Session, kind: str, rows: Sequence[Candidate], payload: dict[str, Any]
) -> None:
    """Tell what happened to candidates of one search."""
    if rows:
        told = {"candidates": [row.id for row in rows], **payload}
        append_event(session, kind, told, job_id=rows[0].search_id)


def _episode(row: Episode) -> records.Episode:
    return record_of(
        row,
        records.Episode,
        finished=row.finished_at is not None,
        candidates=tuple(map(_record, row.candidates)),
    )


def _record(row: Candidate) -> records.Candidate:
    return record_of(
        row,
        records.Candidate,
        index=row.state_index,
        readings=tuple(reading_of(*values) for values in row.readings or ()),
        architecture=Architecture(
            row.layers, row.heads, row.hidden, row.intermediate, row.activation
        ),
    )

"""Who takes up which queued work: coordinators that share one database.

A row is free while nobody holds its lease (``repository.leases``). Of two coordinators that want
the same row one has its lock first and the other passes over it, so no row is ever claimed twice;
SQLite has one writer anyway.

A process that dies again and again at the same place would keep a coordinator busy for ever. So
each death that a coordinator sees is written down as an event together with how far the work was,
and after :data:`MAX_DEATHS` at the same place the row has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import (
    Attempt,
    Candidate,
    Distillation,
    DistillationReading,
    Evaluation,
    Event,
    LatencyBuild,
    Search,
)
from kdnas.db.records import DistillationRecord
from kdnas.db.repository import leases
from kdnas.db.repository.distillations import get_distillation, set_distillation_status
from kdnas.db.repository.evaluations import set_evaluation_status
from kdnas.db.repository.events import ROW_LOCK, append_event
from kdnas.db.repository.latency_builds import set_build_status
from kdnas.db.repository.leases import LeaseOwner
from kdnas.db.repository.searches import set_search_status
from kdnas.records import SearchStatus

RestartedRow = Search | Distillation | Evaluation
QueueRow = RestartedRow | LatencyBuild
QueueTable = type[Search] | type[Distillation] | type[Evaluation] | type[LatencyBuild]

MAX_DEATHS = 3
"""So often the processes of a row may die without any progress in between."""
_LOOKED_AT = 100  # rows; more than any coordinator holds at a time
_FREE_LOCK = {**ROW_LOCK, "skip_locked": True}


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that a coordinator has made its own.

    Attributes:
        row_id: the row.
        name: for the log.
        owner: whose lease it is; the process that does the work takes over its token.
        spec: what was asked for.
        taken_up: whether it ran before, under somebody who is gone.
    """

    row_id: str
    name: str
    owner: LeaseOwner
    spec: Mapping[str, Any]
    taken_up: bool


def waiting(
    session: Session, table: QueueTable, resting: Collection[str] = frozenset()
) -> list[str]:
    """Ids of the service's rows that are queued, or run without anybody, the oldest first.

    Args:
        session: of any transaction.
        table: of which rows.
        resting: ids of rows to pass over.
    """
    rows = session.execute(_unfinished(session, table, resting)).scalars()
    now = leases.database_time(session)
    return [row.id for row in rows if leases.live_holder(row, now) is None]


def claim_next(
    session: Session,
    table: QueueTable,
    owner: LeaseOwner,
    lease_seconds: float,
    resting: Collection[str] = frozenset(),
) -> Claim | None:
    """Take the oldest free row and set it running, with an event.

    Args:
        session: of a write transaction.
        table: of which rows.
        owner: whose the lease is to be; a new one for each row.
        lease_seconds: how long it lasts unless it is renewed.
        resting: ids of rows to pass over.

    Returns:
        What was claimed; None if nothing is free.
    """
    for row_id in waiting(session, table, resting):
        row = _locked(session, table, row_id, _FREE_LOCK)
        if row is None or row.status not in {"queued", "running"}:
            continue  # another one has its lock, or was quicker
        if leases.live_holder(row, leases.database_time(session)) is not None:
            continue
        taken_up = row.status == "running"
        leases.acquire(session, table, row_id, owner, lease_seconds)
        if not taken_up:
            _set_status(session, row, "running")
        return Claim(row_id, getattr(row, "name", row_id), owner, row.spec, taken_up)
    return None


def is_running(session: Session, table: QueueTable, row_id: str) -> bool:
    """Whether a row is there and still to be worked on."""
    return session.scalar(select(table.status).where(table.id == row_id)) == "running"


def ended_distillations(session: Session) -> list[DistillationRecord]:
    """Distillations that were finished or cancelled in the last day, and that nobody holds."""
    query = select(Distillation).where(
        Distillation.status.in_(["succeeded", "cancelled"]),
        Distillation.finished_at > utc_now() - timedelta(days=1),
    )
    now = leases.database_time(session)
    rows = [row for row in session.scalars(query) if leases.live_holder(row, now) is None]
    return [get_distillation(session, row.id) for row in rows]


def ended_evaluations(session: Session) -> list[str]:
    """Ids of evaluations that were finished or cancelled in the last day, and that nobody holds."""
    query = select(Evaluation).where(
        Evaluation.status.in_(["succeeded", "cancelled"]),
        Evaluation.finished_at > utc_now() - timedelta(days=1),
    )
    now = leases.database_time(session)
    return [row.id for row in session.scalars(query) if leases.live_holder(row, now) is None]


def left_open(session: Session) -> list[str]:
    """Ids of searches at rest whose process left attempts open when it was killed."""
    open_ones = (
        select(Candidate.search_id)
        .join(Attempt, Attempt.candidate_id == Candidate.id)
        .where(Attempt.finished_at.is_(None))
    )
    query = select(Search).where(
        Search.status.not_in(["queued", "running"]), Search.id.in_(open_ones)
    )
    now = leases.database_time(session)
    rows = session.scalars(query)
    return [row.id for row in rows if leases.live_holder(row, now) is None]


def note_death(
    session: Session, table: QueueTable, row_id: str, owner: LeaseOwner, reason: str
) -> int:
    """Write down that the process which worked on a row died, and let go of the row.

    Args:
        session: of a write transaction.
        table: of the row.
        row_id: the row.
        owner: the dead process's; a row that somebody else holds by now is left alone.
        reason: how it ended.

    Returns:
        How often processes have died at this place; 0 if the row was not running any more. At
        :data:`MAX_DEATHS` the row has failed.
    """
    row = _locked(session, table, row_id, ROW_LOCK)
    if row is None or row.lease_token not in {owner.token, None}:
        return 0
    leases.release(session, table, row_id, owner)
    if row.status != "running":
        return 0
    if isinstance(row, LatencyBuild):
        _set_status(session, row, "failed", f"{reason}; look at the log, and ask for it again")
        return 1
    progress = _progress(session, row)
    deaths = 1 + _deaths_before(session, row, progress)
    payload = {"reason": reason, "deaths": deaths, "progress": progress}
    if isinstance(row, Evaluation):
        payload["evaluation"] = row.id
    append_event(session, f"{_kind(row)}_interrupted", payload, **_subject(row))
    if deaths >= MAX_DEATHS:
        _set_status(
            session,
            row,
            "failed",
            f"its process died {deaths} times without any progress, the last time so: {reason}; "
            "look at the coordinator's log and at the machine's memory, then resume it",
        )
    return deaths


def _locked(
    session: Session, table: QueueTable, row_id: str, lock: dict[str, bool]
) -> QueueRow | None:
    row = session.get(table, row_id, with_for_update=lock, populate_existing=True)
    return cast(QueueRow | None, row)


def _unfinished(session: Session, table: QueueTable, resting: Collection[str]) -> Select[Any]:
    """Rows that may be free; whether a holder of this host lives, SQL cannot say."""
    query = (
        select(table)
        .where(table.status.in_(["queued", "running"]), table.id.not_in(resting))
        .where(
            or_(
                table.lease_token.is_(None),
                table.lease_expires_at <= leases.database_time(session),
                table.lease_host == leases.this_host(),
            )
        )
        .order_by(table.id)
        .limit(_LOOKED_AT)
    )
    if not issubclass(table, LatencyBuild):
        query = query.where(table.owner_kind == "service")
    return query


def _set_status(
    session: Session,
    row: QueueRow,
    status: SearchStatus,
    error: str | None = None,
) -> None:
    if isinstance(row, Search):
        set_search_status(session, row.id, status, error)
    elif isinstance(row, Distillation):
        set_distillation_status(session, row.id, status, error)
    elif isinstance(row, Evaluation):
        set_evaluation_status(session, row.id, status, error)
    else:
        set_build_status(session, row.id, status, error)


def _progress(session: Session, row: RestartedRow) -> int:
    """How far work has come that a death cannot undo: results, or the last held-out reading.

    An evaluation is one fine-tuning, so that any of its deaths count together.
    """
    if isinstance(row, Evaluation):
        return 0
    if isinstance(row, Search):
        query = select(func.count()).where(
            Candidate.search_id == row.id, Candidate.finished_at.is_not(None)
        )
    else:
        query = select(func.max(DistillationReading.step)).where(
            DistillationReading.distillation_id == row.id
        )
    return session.scalar(query) or 0


def _deaths_before(session: Session, row: RestartedRow, progress: int) -> int:
    """Deaths at the same place, since the row was last queued."""
    kind = _kind(row)
    query = (
        select(Event)
        .where(
            Event.type.in_([f"{kind}_interrupted", f"{kind}_status"]),
            _is_about(row),
        )
        .order_by(Event.id.desc())
        .limit(_LOOKED_AT)
    )
    count = 0
    for event in session.scalars(query):
        if event.payload.get("status") == "queued":
            break
        if event.type.endswith("_interrupted"):
            if event.payload["progress"] != progress:
                break
            count += 1
    return count


def _is_about(row: RestartedRow) -> ColumnElement[bool]:
    if isinstance(row, Evaluation):
        return cast(ColumnElement[bool], Event.payload["evaluation"].as_string() == row.id)
    return (Event.search_id if isinstance(row, Search) else Event.distillation_id) == row.id


def _kind(row: RestartedRow) -> str:
    return type(row).__name__.lower()


def _subject(row: RestartedRow) -> dict[str, str | None]:
    if isinstance(row, Evaluation):
        return {"distillation_id": row.distillation_id}
    return {f"{_kind(row)}_id": row.id}

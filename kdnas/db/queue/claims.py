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
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import Session

from kdnas.db.base import locked, utc_now
from kdnas.db.models import Attempt, Candidate, Event, Job, Search
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import change_status

MAX_DEATHS = 3
"""So often the processes of a row may die without any progress in between."""
_LOOKED_AT = 100  # rows; more than any coordinator holds at a time


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a coordinator has made its own.

    Attributes:
        job_id: the job.
        name: for the log.
        owner: whose lease it is; the process that does the work takes over its token.
        requested: what was asked for.
        taken_up: whether it ran before, under somebody who is gone.
    """

    job_id: str
    name: str
    owner: LeaseOwner
    requested: Mapping[str, Any]
    taken_up: bool


def waiting(session: Session, kind: str, resting: Collection[str] = frozenset()) -> list[str]:
    """Ids of the service's jobs that are queued, or run without anybody, the oldest first.

    Args:
        session: of any transaction.
        kind: of which jobs.
        resting: ids of jobs to pass over.
    """
    query = select(Job).where(Job.kind == kind, *_maybe_free(session, resting))
    return _free(session, query.order_by(Job.id).limit(_LOOKED_AT))


def kinds_in_question(session: Session, resting: Collection[str] = frozenset()) -> frozenset[str]:
    """Kinds of which :func:`waiting` may find a job; of no other it finds one."""
    query = select(Job.kind).where(*_maybe_free(session, resting)).distinct()
    return frozenset(session.scalars(query))


def claim_next(
    session: Session,
    kind: str,
    owner: LeaseOwner,
    lease_seconds: float,
    resting: Collection[str] = frozenset(),
) -> Claim | None:
    """Take the oldest free job and set it running, with an event.

    Args:
        session: of a write transaction.
        kind: of which jobs.
        owner: whose the lease is to be; a new one for each job.
        lease_seconds: how long it lasts unless it is renewed.
        resting: ids of jobs to pass over.

    Returns:
        What was claimed; None if nothing is free.
    """
    for job_id in waiting(session, kind, resting):
        row = locked(session, Job, job_id, skip_locked=True)
        if row is None or row.status not in {"queued", "running"}:
            continue  # another one has its lock, or was quicker
        if leases.live_holder(row, leases.database_time(session)) is not None:
            continue
        taken_up = row.status == "running"
        leases.acquire(session, Job, job_id, owner, lease_seconds)
        if taken_up:
            row.phase, row.phase_since = None, utc_now()
        else:
            change_status(session, row, "running")
        return Claim(job_id, row.name or job_id, owner, row.requested, taken_up)
    return None


def ended(session: Session, kind: str) -> list[str]:
    """Ids of jobs that have succeeded or were cancelled in the last day, and that nobody holds."""
    query = select(Job).where(
        Job.kind == kind,
        Job.status.in_(["succeeded", "cancelled"]),
        Job.finished_at > utc_now() - timedelta(days=1),
    )
    return _free(session, query)


def left_open(session: Session) -> list[str]:
    """Ids of searches at rest whose process left attempts open when it was killed."""
    open_ones = (
        select(Candidate.search_id)
        .join(Attempt, Attempt.candidate_id == Candidate.id)
        .where(Attempt.finished_at.is_(None))
    )
    at_rest = Search.status.not_in(["queued", "running"])
    return _free(session, select(Search).where(at_rest, Search.id.in_(open_ones)))


def note_death(session: Session, job_id: str, owner: LeaseOwner, reason: str) -> int:
    """Write down that the process which worked on a job died, and let go of the job.

    Args:
        session: of a write transaction.
        job_id: the job.
        owner: the dead process's; a job that somebody else holds by now is left alone.
        reason: how it ended.

    Returns:
        How often processes have died at this place; 0 if the job was not running any more. At
        :data:`MAX_DEATHS` the job has failed.
    """
    row = locked(session, Job, job_id)
    if row is None or row.lease_token not in {owner.token, None}:
        return 0
    leases.release(session, Job, job_id, owner)
    if row.status != "running":
        return 0
    progress = row.progress_mark(session)
    deaths = 1 + _deaths_before(session, row, progress)
    payload = {**row.about, "reason": reason, "deaths": deaths, "progress": progress}
    append_event(session, f"{row.kind}_interrupted", payload, job_id=job_id)
    if deaths >= MAX_DEATHS:
        change_status(
            session,
            row,
            "failed",
            f"its process died {deaths} times without any progress, the last time so: {reason}; "
            "look at its log and at the machine's memory, then resume it",
        )
    return deaths


def _maybe_free(session: Session, resting: Collection[str]) -> list[ColumnElement[bool]]:
    """Conditions of jobs to be taken up, as far as SQL can say: not whether a holder here lives."""
    return [
        Job.owner_kind == "service",
        Job.status.in_(["queued", "running"]),
        Job.id.not_in(resting),
        or_(
            Job.lease_token.is_(None),
            Job.lease_expires_at <= leases.database_time(session),
            Job.lease_host == leases.this_host(),
        ),
    ]


def _free(session: Session, query: Select[Job]) -> list[str]:
    """Ids of jobs that nobody holds."""
    now = leases.database_time(session)
    return [row.id for row in session.scalars(query) if leases.live_holder(row, now) is None]


def _deaths_before(session: Session, row: Job, progress: int) -> int:
    """Deaths at the same place, since the job was last queued."""
    query = (
        select(Event)
        .where(
            Event.type.in_([f"{row.kind}_interrupted", f"{row.kind}_status"]),
            Event.job_id == row.id,
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

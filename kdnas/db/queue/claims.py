"""Who takes up which queued work: coordinators that share one database.

Users take turns (:func:`waiting`). A row is free while nobody holds its lease (``queue.leases``).
Of two coordinators that want the same row one has its lock first and the other passes over it, so
no row is ever claimed twice; SQLite has one writer anyway.

A process that dies again and again at the same place would keep a coordinator busy for ever. So
each death that a coordinator sees is written down as an event together with how far the work was,
and after :data:`MAX_DEATHS` at the same place the row has failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, text
from sqlalchemy.orm import Session, load_only

from kdnas.db.base import LEASE_COLUMNS, locked, utc_now
from kdnas.db.models import Attempt, Candidate, Event, Job, Search
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import change_status

MAX_DEATHS = 3
_LOCK = 0x6B646E6163  # key of the advisory lock of who counts the jobs of users
"""So often the processes of a row may die without any progress in between."""
_LOOKED_AT = 100  # rows of a user and kind; more than any coordinator holds at a time


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that is free to be taken up."""

    job_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a coordinator has made its own.

    Attributes:
        job_id: the job.
        kind: of it.
        name: for the log.
        owner: whose lease it is; the process that does the work takes over its token.
        requested: what was asked for.
        taken_up: whether it ran before, under somebody who is gone.
    """

    job_id: str
    kind: str
    name: str
    owner: LeaseOwner
    requested: Mapping[str, Any]
    taken_up: bool


def waiting(
    session: Session,
    kinds: Collection[str],
    resting: Collection[str] = frozenset(),
    most_of_a_user: int | None = None,
) -> list[Waiting]:
    """The service's jobs that are queued, or run without anybody, in the order of their turn.

    Whoever has the fewest at work comes first, so that nobody waits for all that another asked for
    before. Of one user's jobs those of the highest priority come first; of these the kinds take
    turns, and of one kind the oldest.

    Args:
        session: of any transaction.
        kinds: of which jobs.
        resting: ids of jobs to pass over.
        most_of_a_user: so many of a user's are at work at a time; what nobody logged in asked for
            is not bounded.
    """
    nth = func.row_number().over(
        partition_by=(Job.owner, Job.kind), order_by=(Job.priority.desc(), Job.id)
    )
    maybe = select(Job.id, nth.label("nth")).where(
        Job.kind.in_(kinds), *_maybe_free(session, resting)
    )
    first = maybe.subquery()
    query = select(Job).join(first, first.c.id == Job.id).where(first.c.nth <= _LOOKED_AT)
    now = leases.database_time(session)
    of_kind = at_work(session, now)
    of_user: Counter[str | None] = Counter()
    for (user, _), number in of_kind.items():
        of_user[user] += number
    free: dict[str | None, list[tuple[int, int, Job]]] = {}
    for row in session.scalars(query.order_by(first.c.nth)):
        if leases.live_holder(row, now) is None:
            of_kind[row.owner, row.kind] += 1
            turn = of_kind[row.owner, row.kind]
            free.setdefault(row.owner, []).append((-row.priority, turn, row))
    found = []
    for user, rows in free.items():
        most = None if user is None else most_of_a_user
        rows.sort(key=lambda one: (*one[:2], one[2].id))
        for number, (*_, row) in enumerate(rows, of_user[user] + 1):
            if most is None or number <= most:
                found.append((number, row.id, row.kind))
    return [Waiting(job_id, kind) for _, job_id, kind in sorted(found)]


def at_work(session: Session, now: datetime) -> Counter[tuple[str | None, str]]:
    """How many of the service's jobs are at work, by user and kind, at a moment of its clock.

    One that is paused or cancelled is, as long as a process holds it: its trainings may take long
    to their end, and it goes on at once when it is resumed.
    """
    held = select(Job).where(Job.owner_kind == "service", Job.lease_token.is_not(None))
    rows = [row for row in session.scalars(held) if leases.live_holder(row, now) is not None]
    return Counter((row.owner, row.kind) for row in rows)


def kinds_in_question(session: Session, resting: Collection[str] = frozenset()) -> frozenset[str]:
    """Kinds of which :func:`waiting` may find a job; of no other it finds one."""
    query = select(Job.kind).where(*_maybe_free(session, resting)).distinct()
    return frozenset(session.scalars(query))


def claim_next(
    session: Session,
    kinds: Collection[str],
    owner: LeaseOwner,
    lease_seconds: float,
    resting: Collection[str] = frozenset(),
    most_of_a_user: int | None = None,
) -> Claim | None:
    """Take the free job whose turn it is and set it running, with an event.

    Args:
        session: of a write transaction.
        kinds: of which jobs.
        owner: whose the lease is to be; a new one for each job.
        lease_seconds: how long it lasts unless it is renewed.
        resting: ids of jobs to pass over.
        most_of_a_user: see :func:`waiting`.

    Returns:
        What was claimed; None if nothing is free.
    """
    if most_of_a_user is not None and session.get_bind().dialect.name == "postgresql":
        # Two that count at the same time would each take one of the same user's.
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    for one in waiting(session, kinds, resting, most_of_a_user):
        row = locked(session, Job, one.job_id, skip_locked=True)
        if row is None or row.status not in {"queued", "running"}:
            continue  # another one has its lock, or was quicker
        if leases.live_holder(row, leases.database_time(session)) is not None:
            continue
        taken_up = row.status == "running"
        leases.acquire(session, Job, row.id, owner, lease_seconds)
        if taken_up:
            row.phase, row.phase_since = None, utc_now()
        else:
            change_status(session, row, "running")
        return Claim(row.id, row.kind, row.name or row.id, owner, row.requested, taken_up)
    return None


def ended(session: Session, kind: str) -> list[str]:
    """Ids of jobs that have succeeded or were cancelled in the last day, and that nobody holds."""
    return _free(
        session,
        Job,
        Job.kind == kind,
        Job.status.in_(["succeeded", "cancelled"]),
        Job.finished_at > utc_now() - timedelta(days=1),
    )


def left_open(session: Session) -> list[str]:
    """Ids of searches at rest whose process left attempts open when it was killed."""
    open_ones = (
        select(Candidate.search_id)
        .join(Attempt, Attempt.candidate_id == Candidate.id)
        .where(Attempt.finished_at.is_(None))
    )
    at_rest = Search.status.not_in(["queued", "running"])
    return _free(session, Search, at_rest, Search.id.in_(open_ones))


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


def _free(session: Session, table: type[Job], *conditions: ColumnElement[bool]) -> list[str]:
    """Ids of jobs that nobody holds; these are many, so of each only who holds it is read."""
    now = leases.database_time(session)
    read = [table.id, *(getattr(table, name) for name in LEASE_COLUMNS)]
    query = select(table).where(*conditions).options(load_only(*read))
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

"""Jobs of all kinds as a list, and one with its request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kdnas.db.base import utc_now
from kdnas.db.lists.pages import Order, PageOf, read_page
from kdnas.db.models import FINAL_STATUSES, Job, JobLabel
from kdnas.db.queue import coordinators, leases
from kdnas.records import SearchStatus

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": Job.created_at,
    "kind": Job.kind,
    "name": Job.name,
    "status": Job.status,
    "finished_at": Job.finished_at,
}

Row = dict[str, Any]

_SHOWN: Final = (
    "id",
    "kind",
    "name",
    "status",
    "owner_kind",
    "phase",
    "phase_since",
    "done",
    "total",
    "error",
    "note",
    "labels",
    "parent_id",
    "worked_seconds",
    "created_at",
    "started_at",
    "finished_at",
)

_LEASE: Final = tuple(c.name for c in Job.__table__.columns if c.name.startswith("lease_"))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are wanted.

    Attributes:
        kind: one of these kinds.
        status: one of these.
        label: all of these labels.
        name: a part of the name, in capitals or not.
        parent_id: the job that asked for them.
        roots: only those that no other job asked for.
    """

    kind: Sequence[str] = ()
    status: Sequence[SearchStatus] = ()
    label: Sequence[str] = ()
    name: str | None = None
    parent_id: str | None = None
    roots: bool = False


def list_jobs(
    session: Session,
    wanted: JobFilter,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of jobs without their requests.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = select(Job.id)
    if wanted.kind:
        query = query.where(Job.kind.in_(wanted.kind))
    if wanted.status:
        query = query.where(Job.status.in_(wanted.status))
    for label in wanted.label:
        named = select(JobLabel.job_id).where(JobLabel.label == label)
        query = query.where(Job.id.in_(named))
    if wanted.name is not None:
        query = query.where(func.lower(Job.name).contains(wanted.name.lower(), autoescape=True))
    if wanted.parent_id is not None:
        query = query.where(Job.parent_id == wanted.parent_id)
    if wanted.roots:
        query = query.where(Job.parent_id.is_(None))
    scope = {"list": "jobs", "sort": sort, "descending": descending, **asdict(wanted)}
    order = Order(SORTS[sort], Job.id, descending)
    page = read_page(session, query, order, scope, limit, cursor)
    rows = read_jobs(session, [row[0] for row in page.items])
    return PageOf(rows, page.next_cursor)


def read_jobs(session: Session, ids: Sequence[str]) -> list[Row]:
    """Read jobs as the list has them, in the order given; those that are gone are left out."""
    # Columns, not objects: the package of a row's kind may have been removed.
    query = select(*(getattr(Job, name) for name in (*_SHOWN, *_LEASE))).where(Job.id.in_(ids))
    found = {row.id: row for row in session.execute(query)}
    children = _children(session, found)
    now, attended = leases.database_time(session), coordinators.count_alive(session) > 0
    return [
        _row(found[one], children.get(one, (0, 0)), now, attended) for one in ids if one in found
    ]


def read_job(session: Session, job_id: str) -> Row:
    """Read one job as the list has it, with its request; it has to be there."""
    (row,) = read_jobs(session, [job_id])
    query = select(Job.requested, Job.resolved).where(Job.id == job_id)
    return {**row, **session.execute(query).one()._mapping}


def list_labels(session: Session) -> list[Row]:
    """Every label with how many jobs have it, the most used first."""
    count = func.count()
    query = (
        select(JobLabel.label, count.label("num_jobs"))
        .group_by(JobLabel.label)
        .order_by(count.desc(), JobLabel.label)
    )
    return [dict(row._mapping) for row in session.execute(query)]


def _children(session: Session, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    child = aliased(Job, flat=True)
    ended = func.sum(case((child.status.in_(FINAL_STATUSES), 1), else_=0))
    query = (
        select(child.parent_id, func.count(), ended)
        .where(child.parent_id.in_(ids))
        .group_by(child.parent_id)
    )
    return {str(row[0]): (row[1], int(row[2] or 0)) for row in session.execute(query)}


def _row(job: Any, children: tuple[int, int], now: datetime, attended: bool) -> Row:
    holder = leases.live_holder(job, now)
    return {
        **{name: getattr(job, name) for name in _SHOWN},
        "standing": _standing(job, children, holder is not None, attended),
        "remaining_seconds": _remaining(job, now) if holder is not None else None,
        "num_children": children[0],
        "num_children_ended": children[1],
        "worker": None if holder is None else f"{holder.host}, process {holder.pid}",
    }


def _standing(job: Any, children: tuple[int, int], held: bool, attended: bool) -> str:
    """Say what a job does or waits for."""
    of_service = job.owner_kind == "service"
    if job.status == "queued" and of_service:
        return "waiting in the queue" if attended else "no coordinator looks after the queue"
    if job.status == "queued":
        return "its command has not come to it yet"
    if job.status != "running":
        return str(job.status)
    if not held and children[0]:
        return f"waiting for its parts: {children[1]} of {children[0]} have ended"
    if not held:
        if job.phase and job.phase.startswith("waiting"):
            return str(job.phase)
        if not of_service:
            return "its process is gone; resume it with the command that started it"
        return "its process is gone; " + (
            "a coordinator takes it up" if attended else "no coordinator looks after the queue"
        )
    return job.phase or "at work"


def _remaining(job: Any, now: datetime) -> float | None:
    """Seconds that a running job will take yet, if it goes on as it went so far."""
    if job.status != "running" or not job.done or not job.total or job.done >= job.total:
        return None
    since = job.phase_since or job.started_at or utc_now()
    worked = job.worked_seconds + max(0.0, (now - since).total_seconds())
    return float(worked / job.done * (job.total - job.done))

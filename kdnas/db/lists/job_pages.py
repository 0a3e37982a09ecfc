"""Jobs as a list, of all kinds or of one with what is its own, and some in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kdnas.db.base import utc_now
from kdnas.db.lists.pages import Order, PageOf, read_page
from kdnas.db.models import FINAL_STATUSES, Job, JobLabel, kind_of
from kdnas.db.queue import claims, coordinators, leases
from kdnas.db.repository import jobs, names

Row = dict[str, Any]

Filter = Callable[[Session, Any], ColumnElement[bool]]
"""Makes a condition of what a user gives: session and value → which rows."""

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": Job.created_at,
    "kind": Job.kind,
    "name": Job.name,
    "status": Job.status,
    "finished_at": Job.finished_at,
}

_LEASE: Final = tuple(c.name for c in Job.__table__.columns if c.name.startswith("lease_"))

_COLUMNS: Final = (
    *(
        "id",
        "kind",
        "name",
        "status",
        "owner_kind",
        "owner",
        "priority",
        "phase",
        "phase_since",
        "done",
        "total",
    ),
    *("error", "note", "labels", "parent_id", "worked_seconds"),
    *("created_at", "started_at", "finished_at"),
    *_LEASE,
)

_PART = aliased(Job, flat=True)
_NUM_PARTS = select(func.count()).where(_PART.parent_id == Job.id).correlate(Job)
_PARTS: Final = {
    "_parts": _NUM_PARTS.scalar_subquery(),
    "_parts_ended": _NUM_PARTS.where(_PART.status.in_(FINAL_STATUSES)).scalar_subquery(),
}
"""How many jobs a job has asked for; read with each."""


def equal_to(column: ColumnElement[Any] | InstrumentedAttribute[Any]) -> Filter:
    """Keep what has a value in a column."""
    return lambda session, value: column == value


def one_of(column: InstrumentedAttribute[Any]) -> Filter:
    """Keep what has one of some values in a column."""
    return lambda session, values: column.in_(values)


def reference_to(table: type[Job], column: InstrumentedAttribute[Any]) -> Filter:
    """Keep what has a job of a table, given by id or name, in a column."""
    return lambda session, reference: column == jobs.id_of(session, reference, table)


def _with_labels(session: Session, labels: Sequence[str]) -> ColumnElement[bool]:
    named = (select(JobLabel.job_id).where(JobLabel.label == label) for label in labels)
    return and_(*(Job.id.in_(ids) for ids in named))


def _part_of_name(session: Session, part: str) -> ColumnElement[bool]:
    part = names.as_stored(part)  # SQLite knows capitals of ASCII alone, so as it stands, too
    small = func.lower(Job.name).contains(part.lower(), autoescape=True)
    return or_(small, Job.name.contains(part, autoescape=True))


FILTERS: Final[Mapping[str, Filter]] = {
    "kind": one_of(Job.kind),
    "status": one_of(Job.status),
    "owner_kind": equal_to(Job.owner_kind),
    "owner": equal_to(Job.owner),
    "label": _with_labels,
    "name": _part_of_name,
    "q": _part_of_name,
    "parent": reference_to(Job, Job.parent_id),
    "roots": lambda session, _: Job.parent_id.is_(None),
}
"""Filter of every list → what it keeps; all of the labels, and a name in capitals or not."""


def _as_it_is(session: Session, rows: list[Row]) -> list[Row]:
    return rows


@dataclass(frozen=True)
class Listing:
    """What a list has of a kind besides what that of all jobs has.

    Attributes:
        table: of its jobs; all of them, if it is :class:`~kdnas.db.models.Job`.
        columns: name in a row → what is read for it. With a line before it, it is for ``complete``
            and ``detail`` alone.
        sorts: name → column.
        filters: name → what it keeps.
        complete: adds to the rows of a page, all at once, what takes reads of its own.
        detail: adds to rows that are read in full, after ``complete``.
    """

    table: type[Job] = Job
    columns: Mapping[str, Any] = field(default_factory=dict)
    sorts: Mapping[str, InstrumentedAttribute[Any]] = field(default_factory=dict)
    filters: Mapping[str, Filter] = field(default_factory=dict)
    complete: Callable[[Session, list[Row]], list[Row]] = _as_it_is
    detail: Callable[[Session, list[Row]], list[Row]] = _as_it_is

    @cached_property
    def query(self) -> Select[Any]:
        """Reads its rows; made once, since it is asked at each request."""
        # Columns, not objects: the package of a row's kind may have been removed.
        own = (column.label(name) for name, column in {**_PARTS, **self.columns}.items())
        query = select(*(getattr(Job, name) for name in _COLUMNS), *own)
        return query if self.table is Job else query.where(Job.kind == kind_of(self.table))


ALL: Final = Listing()


def list_jobs(
    session: Session,
    wanted: Mapping[str, Any],
    listing: Listing = ALL,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of jobs without their requests.

    Args:
        session: to read with.
        wanted: filter → plain value, of :data:`FILTERS` and those of the listing.
        listing: of which kind.
        sort: one of :data:`SORTS`, or of those of the listing.
        descending: from the largest down.
        limit: length of the page.
        cursor: of the page before.

    Raises:
        RequestError: the cursor is that of another list.
        NotFoundError: a job that a filter names is not there.
    """
    filters = {**FILTERS, **listing.filters}
    query = listing.query.where(*(filters[name](session, value) for name, value in wanted.items()))
    order = Order({**SORTS, **listing.sorts}[sort], Job.id, descending)
    scope = {"list": str(listing.table.__tablename__), "sort": sort, "descending": descending}
    page = read_page(session, query, order, {**scope, **wanted}, limit, cursor)
    return PageOf(_shown(_rows(session, page.items, listing)), page.next_cursor)


def read_jobs(session: Session, ids: Collection[str], listing: Listing = ALL) -> list[Row]:
    """Read jobs as the list has them, in the order given; those that are gone are left out."""
    return _shown(_read(session, listing.query, ids, listing))


def read_in_full(session: Session, ids: Collection[str], listing: Listing = ALL) -> list[Row]:
    """Read jobs as :func:`read_jobs` does, with what was asked for and what it came to be."""
    asked = {"requested": Job.requested, "resolved": Job.resolved, "spec": Job.spec}
    more = (column.label(name) for name, column in asked.items() if name not in listing.columns)
    query = listing.query.add_columns(*more)
    return _shown(listing.detail(session, _read(session, query, ids, listing)))


def list_labels(session: Session) -> list[Row]:
    """Every label with how many jobs have it, the most used first."""
    count = func.count()
    query = (
        select(JobLabel.label, count.label("num_jobs"))
        .group_by(JobLabel.label)
        .order_by(count.desc(), JobLabel.label)
    )
    return [dict(row._mapping) for row in session.execute(query)]


def _read(
    session: Session, query: Select[Any], ids: Collection[str], listing: Listing
) -> list[Row]:
    found = {row.id: row for row in session.execute(query.where(Job.id.in_(ids)))}
    return _rows(session, [found[one] for one in ids if one in found], listing)


def _rows(session: Session, found: Sequence[Any], listing: Listing) -> list[Row]:
    """Turn what was read into what is shown."""
    if not found:
        return []
    at_work = any(job.lease_token or job.status in {"queued", "running"} for job in found)
    now = leases.database_time(session) if at_work else utc_now()
    attended = at_work and coordinators.count_alive(session, now) > 0
    held_up = _held_up(session, found, now) if attended else {}
    failed = _num_failed(session, found)
    rows = [
        {**_row(job, now, attended, held_up), "num_failed": failed.get(job.id, 0)} for job in found
    ]
    return listing.complete(session, rows)


def _held_up(session: Session, found: Sequence[Any], now: datetime) -> Mapping[str, str]:
    """Users whose jobs wait since as many of theirs are at work as may be: what is said of that."""
    users = {job.owner for job in found if job.status == "queued" and job.owner is not None}
    most = coordinators.most_of_a_user(session, now) if users else None
    if most is None:
        return {}
    numbers: Counter[str] = Counter()
    for (user, _), number in claims.at_work(session, now).items():
        if user is not None and user in users:
            numbers[user] += number
    return {
        user: f"waiting in the queue: {user} has {number} of {most} jobs at work"
        for user, number in numbers.items()
        if number >= most
    }


def _num_failed(session: Session, found: Sequence[Any]) -> dict[str, int]:
    """How much of what they have done came to nothing, asked of each kind once."""
    failed: dict[str, int] = {}
    for kind in {job.kind for job in found}:
        table = Job.__mapper__.polymorphic_map[kind].class_
        failed |= table.count_failed(session, [job.id for job in found if job.kind == kind])
    return failed


def _shown(rows: Sequence[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]


def _row(job: Any, now: datetime, attended: bool, held_up: Mapping[str, str]) -> Row:
    holder, children = leases.live_holder(job, now), (job._parts, job._parts_ended)
    return {
        **{name: value for name, value in job._mapping.items() if name not in _LEASE},
        "standing": _standing(job, children, holder is not None, attended, held_up),
        "remaining_seconds": _remaining(job, now) if holder is not None else None,
        "num_children": children[0],
        "num_children_ended": children[1],
        "worker": None if holder is None else f"{holder.host}, process {holder.pid}",
    }


def _standing(
    job: Any, children: tuple[int, int], held: bool, attended: bool, held_up: Mapping[str, str]
) -> str:
    """Say what a job does or waits for."""
    of_service = job.owner_kind == "service"
    if job.status == "queued" and of_service:
        waits = held_up.get(job.owner or "", "waiting in the queue")
        return waits if attended else "no coordinator looks after the queue"
    if job.status == "queued":
        return "its command has not come to it yet"
    if job.status == "paused" and held:
        return str(job.phase or job.status)  # what is let come to its end
    if job.status != "running":
        return str(job.status)
    if not held and children[1] == children[0] and (job.phase or "").startswith("waiting"):
        return str(job.phase)
    if not held and children[0]:
        return f"waiting for its parts: {children[1]} of {children[0]} have ended"
    if not held:
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

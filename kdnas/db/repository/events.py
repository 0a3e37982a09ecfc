"""What happened, in the order of the commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, text
from sqlalchemy.orm import Session

from kdnas.db.engine import ACTOR
from kdnas.db.models import Event, Job
from kdnas.db.records import EventRecord, record_of

_LOCK = 0x6B646E6165  # key of the advisory lock that orders events


def append_event(
    session: Session,
    kind: str,
    payload: Mapping[str, Any],
    *,
    job_id: str | None = None,
    root_job_id: str | None = None,
) -> int:
    """Write an event; the last thing that a transaction does.

    Who asked for what the transaction does is put into it as ``by``.

    A reader that asks for events since n must not miss one below n that is committed later, so on
    PostgreSQL numbers are given out under a lock that lasts until the commit. SQLite has one
    writer anyway.

    Args:
        session: of a write transaction.
        kind: its type.
        payload: what it says, as plain JSON; numbers that are not finite, which JSON has none of,
            become null.
        job_id: the job that it happened to; what happens to a child is told of its parent as well.
        root_job_id: the job whose page tells of it, where it happened to none that is there.

    Returns:
        The event's id.
    """
    session.flush()
    root = root_job_id
    if job_id is not None:
        root = session.get_one(Job, job_id).event_root(session)
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    by = actor(session)
    told: dict[str, Any] = _finite(dict(payload) if by is None else {**payload, "by": by})
    row = Event(type=kind, payload=told, job_id=job_id, root_job_id=root)
    session.add(row)
    session.flush()
    return row.id


def _finite(value: Any) -> Any:
    """The same without NaN and infinities, such as the loss of a training that diverges."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def actor(session: Session) -> str | None:
    """Who asked for what a transaction does; see :meth:`kdnas.db.engine.Database.write`."""
    by: str | None = session.info.get(ACTOR)
    return by


def events_since(
    session: Session, event_id: int = 0, *, job_id: str | None = None, limit: int = 1000
) -> list[EventRecord]:
    """Events with an id above ``event_id`` in order, of everything or of a job and its parts."""
    query = _events().where(Event.id > event_id).order_by(Event.id).limit(limit)
    if job_id is not None:
        query = query.where(_about(job_id))
    return [record_of(row, EventRecord) for row in session.execute(query)]


def payloads_of(session: Session, kind: str, job_id: str) -> list[Mapping[str, Any]]:
    """What events of one type said of a job, in order."""
    query = select(Event.payload).where(Event.type == kind, Event.job_id == job_id)
    return list(session.scalars(query.order_by(Event.id)))


def last_event(session: Session, kinds: Collection[str]) -> EventRecord | None:
    """The newest event of some types."""
    query = _events().where(Event.type.in_(kinds)).order_by(Event.id.desc()).limit(1)
    row = session.execute(query).one_or_none()
    return None if row is None else record_of(row, EventRecord)


def last_event_id(session: Session) -> int:
    """Id of the newest event, 0 if there is none."""
    return session.scalar(select(func.max(Event.id))) or 0


def start_of_tail(session: Session, job_id: str, count: int) -> int:
    """The id after which come the newest ``count`` events, at least 1, of a job and its parts.

    An unknown job has none.
    """
    if "\0" in job_id:  # PostgreSQL's texts have none
        return last_event_id(session)
    query = select(Event.id).where(_about(job_id)).order_by(Event.id.desc()).limit(count)
    newest = session.scalars(query).all()
    return newest[-1] - 1 if newest else last_event_id(session)


def _about(job_id: str) -> ColumnElement[bool]:
    return or_(Event.job_id == job_id, Event.root_job_id == job_id)


def _events() -> Select[Any]:
    columns: list[Any] = [Event.__table__, Job.kind]
    return select(*columns).outerjoin(Job.__table__, Job.id == Event.job_id)

"""What happened, in the order of the commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import func, or_, select, text
from sqlalchemy.orm import Session

from kdnas.db.models import Distillation, Event, Pipeline, PipelineMember, Search
from kdnas.db.records import EventRecord

ROW_LOCK = {"key_share": True}
"""How repositories lock a row: ``FOR NO KEY UPDATE``.

A plain ``FOR UPDATE`` would keep others from writing events of that row's search while its holder
waits for their lock on the numbering: a deadlock. SQLite ignores it, having one writer.
"""

_LOCK = 0x6B646E6165  # key of the advisory lock that orders events


def append_event(
    session: Session,
    kind: str,
    payload: Mapping[str, Any],
    *,
    search_id: str | None = None,
    distillation_id: str | None = None,
    pipeline_id: str | None = None,
) -> int:
    """Write an event; the last thing that a transaction does.

    A reader that asks for events since n must not miss one below n that is committed later, so on
    PostgreSQL numbers are given out under a lock that lasts until the commit. SQLite has one
    writer anyway.

    What happens to a part of a pipeline is an event of the pipeline as well, also where the caller
    does not know of it.

    Returns:
        The event's id.
    """
    session.flush()
    if pipeline_id is None:
        pipeline_id = _pipeline_of(session, search_id, distillation_id)
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    row = Event(
        type=kind,
        payload=dict(payload),
        search_id=search_id,
        distillation_id=distillation_id,
        pipeline_id=pipeline_id,
    )
    session.add(row)
    session.flush()
    return row.id


def events_since(
    session: Session,
    event_id: int = 0,
    *,
    search_id: str | None = None,
    distillation_id: str | None = None,
    pipeline_id: str | None = None,
    limit: int = 1000,
) -> list[EventRecord]:
    """Events with an id above ``event_id`` in order, of everything or of one subject."""
    query = select(Event).where(Event.id > event_id).order_by(Event.id).limit(limit)
    if search_id is not None:
        query = query.where(Event.search_id == search_id)
    if distillation_id is not None:
        query = query.where(Event.distillation_id == distillation_id)
    if pipeline_id is not None:
        query = query.where(Event.pipeline_id == pipeline_id)
    return [_record(row) for row in session.scalars(query)]


def payloads_of(
    session: Session,
    kind: str,
    *,
    search_id: str | None = None,
    distillation_id: str | None = None,
) -> list[Mapping[str, Any]]:
    """What events of one type said of a search or a distillation, in order."""
    query = select(Event.payload).where(Event.type == kind).order_by(Event.id)
    if search_id is not None:
        query = query.where(Event.search_id == search_id)
    if distillation_id is not None:
        query = query.where(Event.distillation_id == distillation_id)
    return list(session.scalars(query))


def last_event(session: Session, kinds: Collection[str]) -> EventRecord | None:
    """The newest event of some types."""
    row = session.scalar(
        select(Event).where(Event.type.in_(kinds)).order_by(Event.id.desc()).limit(1)
    )
    return None if row is None else _record(row)


def last_event_id(session: Session) -> int:
    """Id of the newest event, 0 if there is none."""
    return session.scalar(select(func.max(Event.id))) or 0


def start_of_tail(session: Session, reference: str, count: int) -> int:
    """The id after which come the newest ``count`` events of a search or another subject.

    Args:
        session: of any transaction.
        reference: id or name of a search, a distillation or a pipeline; an unknown one has no
            events.
        count: how many events, at least 1.
    """
    if "\0" in reference:  # PostgreSQL's texts have none
        return last_event_id(session)
    newest: list[int] = []
    subjects: list[tuple[Any, Any]] = [
        (Search, Event.search_id),
        (Distillation, Event.distillation_id),
        (Pipeline, Event.pipeline_id),
    ]
    for table, column in subjects:
        subject = select(table.id).where(or_(table.id == reference, table.name == reference))
        query = select(Event.id).where(column.in_(subject)).order_by(Event.id.desc()).limit(count)
        newest += session.scalars(query)
    return min(sorted(newest)[-count:]) - 1 if newest else last_event_id(session)


def _pipeline_of(
    session: Session, search_id: str | None, distillation_id: str | None
) -> str | None:
    if search_id is not None:
        return session.scalar(select(Pipeline.id).where(Pipeline.search_id == search_id))
    if distillation_id is not None:
        query = select(PipelineMember.pipeline_id)
        return session.scalar(query.where(PipelineMember.distillation_id == distillation_id))
    return None


def _record(row: Event) -> EventRecord:
    return EventRecord(
        row.id,
        row.type,
        row.payload,
        row.search_id,
        row.distillation_id,
        row.pipeline_id,
        row.created_at,
    )

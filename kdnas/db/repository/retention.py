"""What of events and stored answers is old enough to go.

Events are what users read, but not only they: these stay, however old they are.

- Those of a job that is not over, or of a part of such a job: :mod:`kdnas.db.queue.claims` counts
  deaths at the same place in them, and who follows the job reads them from the beginning.
- The newest of each job: figures of a search are remembered under its number
  (:func:`kdnas.db.exploration.explored.newest_event`).
- The newest of all, and with it the highest number: whoever asks for what came after a number must
  not be given a lower one (:func:`kdnas.db.repository.events.last_event_id`).
- The newest that says how far the webhook has told (:data:`WEBHOOK_POSITIONS`): it goes on there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.models import Event, IdempotencyKey, Job
from kdnas.db.repository.idempotency import KEPT_FOR
from kdnas.db.repository.jobs import NOT_OVER

WEBHOOK_POSITIONS: Final = ("webhook_enabled", "webhook_delivered", "webhook_given_up")
"""Types of the events that say how far the webhook has told."""
_AT_ONCE = 1000
"""Rows of a transaction: on SQLite others wait for it."""


def num_old_events(session: Session, before: datetime) -> int:
    """Count the events from before a moment that :func:`remove_old_events` would remove."""
    return session.scalar(select(func.count()).select_from(Event).where(*_old(before))) or 0


def remove_old_events(
    database: Database, before: datetime, should_stop: Callable[[], bool] = lambda: False
) -> int:
    """Remove events from before a moment, but for those that are still needed.

    Args:
        database: it is written to in short transactions, one after the other.
        before: the moment.
        should_stop: asked between them.

    Returns:
        How many were removed.
    """
    num_removed = position = 0
    while not should_stop():
        query = select(Event.id).where(Event.id > position, *_old(before))
        with database.read() as session:
            found = session.scalars(query.order_by(Event.id).limit(_AT_ONCE)).all()
        if not found:
            break
        position = found[-1]
        # Asked again, since a job may have been resumed between the two transactions.
        removal = delete(Event).where(Event.id.in_(found), *_old(before))
        with database.write() as session:
            removed: Any = session.execute(
                removal, execution_options={"synchronize_session": False}
            )
            num_removed += removed.rowcount
    return num_removed


def num_old_answers(session: Session) -> int:
    """Count the answers to requests that nobody may send again any more."""
    return session.scalar(select(func.count()).select_from(IdempotencyKey).where(_forgotten())) or 0


def remove_old_answers(session: Session) -> int:
    """Remove them; every request with a key does so, too."""
    removed: Any = session.execute(delete(IdempotencyKey).where(_forgotten()))
    return int(removed.rowcount)


def _forgotten() -> ColumnElement[bool]:
    return IdempotencyKey.created_at < utc_now() - KEPT_FOR


def _old(before: datetime) -> tuple[ColumnElement[bool], ...]:
    """Conditions of an event that may go."""
    later, newest, told = aliased(Event), aliased(Event), aliased(Event)
    at_work = select(Job.id).where(Job.status.in_(NOT_OVER))
    of_job_with_later = exists().where(later.job_id == Event.job_id, later.id > Event.id)
    highest = select(func.max(newest.id)).scalar_subquery()
    position = select(func.max(told.id)).where(told.type.in_(WEBHOOK_POSITIONS)).scalar_subquery()
    return (
        Event.created_at < before,
        or_(Event.job_id.is_(None), and_(Event.job_id.not_in(at_work), of_job_with_later)),
        or_(Event.root_job_id.is_(None), Event.root_job_id.not_in(at_work)),
        Event.id < highest,
        or_(Event.type.not_in(WEBHOOK_POSITIONS), Event.id < position),
    )

"""Who looks after the queue: each coordinator says every few seconds that it does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from kdnas.db.models import CoordinatorRow
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner

SILENT_SECONDS: Final = 30.0
"""A coordinator that has said nothing for so long does not count."""
FORGOTTEN: Final = timedelta(days=1)


def note_alive(
    session: Session,
    owner: LeaseOwner,
    max_running: int,
    num_running: int,
    max_of_a_user: int | None = None,
) -> None:
    """Write down that a coordinator looks after the queue, and how much it has to do."""
    now = leases.database_time(session)
    session.execute(delete(CoordinatorRow).where(CoordinatorRow.seen_at < now - FORGOTTEN))
    session.merge(
        CoordinatorRow(
            id=owner.token,
            host=owner.host,
            pid=owner.pid,
            max_running=max_running,
            max_of_a_user=max_of_a_user,
            num_running=num_running,
            seen_at=now,
        )
    )


def note_gone(session: Session, owner: LeaseOwner) -> None:
    """Write down that a coordinator has ended in good order."""
    session.execute(delete(CoordinatorRow).where(CoordinatorRow.id == owner.token))


def count_alive(session: Session, now: datetime | None = None) -> int:
    """How many coordinators look after the queue at a moment of the database's clock, or now."""
    query = select(func.count()).select_from(CoordinatorRow)
    return session.scalar(query.where(_is_alive(session, now))) or 0


def most_of_a_user(session: Session, now: datetime | None = None) -> int | None:
    """How many jobs of a user are at work at a time; None if nothing bounds them."""
    query = select(CoordinatorRow.max_of_a_user).where(_is_alive(session, now))
    bounds = session.scalars(query).all()
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and len(known) == len(bounds) else None


def _is_alive(session: Session, now: datetime | None) -> ColumnElement[bool]:
    since = (now or leases.database_time(session)) - timedelta(seconds=SILENT_SECONDS)
    return CoordinatorRow.seen_at >= since

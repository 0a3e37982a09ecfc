"""Who looks after the queue: each coordinator says every few seconds that it does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from kdnas.db.models import CoordinatorRow
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner

SILENT_SECONDS: Final = 30.0
"""A coordinator that has said nothing for so long does not count."""
FORGOTTEN: Final = timedelta(days=1)


def note_alive(session: Session, owner: LeaseOwner, max_running: int, num_running: int) -> None:
    """Write down that a coordinator looks after the queue, and how much it has to do."""
    now = leases.database_time(session)
    session.execute(delete(CoordinatorRow).where(CoordinatorRow.seen_at < now - FORGOTTEN))
    session.merge(
        CoordinatorRow(
            id=owner.token,
            host=owner.host,
            pid=owner.pid,
            max_running=max_running,
            num_running=num_running,
            seen_at=now,
        )
    )


def note_gone(session: Session, owner: LeaseOwner) -> None:
    """Write down that a coordinator has ended in good order."""
    session.execute(delete(CoordinatorRow).where(CoordinatorRow.id == owner.token))


def count_alive(session: Session, now: datetime | None = None) -> int:
    """How many coordinators look after the queue at a moment of the database's clock, or now."""
    since = (now or leases.database_time(session)) - timedelta(seconds=SILENT_SECONDS)
    query = select(func.count()).select_from(CoordinatorRow)
    return session.scalar(query.where(CoordinatorRow.seen_at >= since)) or 0

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
    *,
    max_of_a_user: int | None = None,
    webhook_url: str | None = None,
) -> None:
    """Write down that a coordinator looks after the queue, how much it has to do, and its webhook.

    Args:
        session: of a write transaction.
        owner: the coordinator.
        max_running: so many jobs at a time.
        num_running: so many at present.
        max_of_a_user: so many of a user's at a time; None bounds nobody.
        webhook_url: what it tells ends to, without credentials and query.
    """
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
            webhook_url=webhook_url,
            seen_at=now,
        )
    )


def note_gone(session: Session, owner: LeaseOwner) -> None:
    """Write down that a coordinator has ended in good order."""
    session.execute(delete(CoordinatorRow).where(CoordinatorRow.id == owner.token))


def count_alive(session: Session, now: datetime | None = None) -> int:
    """How many coordinators look after the queue at a moment of the database's clock, or now."""
    query = select(func.count()).select_from(CoordinatorRow)
    return session.scalar(query.where(_alive_at(now or leases.database_time(session)))) or 0


def most_of_a_user(session: Session, now: datetime | None = None) -> int | None:
    """How many jobs of a user are at work at a time; None if nothing bounds them."""
    alive = _alive_at(now or leases.database_time(session))
    bounds = session.scalars(select(CoordinatorRow.max_of_a_user).where(alive)).all()
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and len(known) == len(bounds) else None


def webhook_urls(session: Session) -> list[str]:
    """What the coordinators that look after the queue tell ends to, each once."""
    query = select(CoordinatorRow.webhook_url).where(
        CoordinatorRow.webhook_url.is_not(None), _alive_at(leases.database_time(session))
    )
    return sorted({url for url in session.scalars(query) if url is not None})


def _alive_at(now: datetime) -> ColumnElement[bool]:
    return CoordinatorRow.seen_at >= now - timedelta(seconds=SILENT_SECONDS)

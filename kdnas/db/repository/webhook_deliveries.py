"""Messages of a webhook: which are to be sent, who sends the next one, and what came of it.

They are sent one after the other, in the order of their events. Whoever claims the next one has it
for a while, on the database's clock; should that one die, anybody has it then. So a message may
arrive twice, after a kill, and never is one lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import ColumnElement, Select, and_, delete, func, select
from sqlalchemy.orm import Session

from kdnas.db.base import insert, locked, new_id
from kdnas.db.models import WebhookDelivery
from kdnas.db.queue.leases import database_time
from kdnas.db.records import ClaimedDelivery, DeliveryStatus, NewDelivery
from kdnas.db.repository.events import append_event
from kdnas.errors import ConflictError, NotFoundError

TOLD_FOR: Final = timedelta(days=1)
"""After that a message is given up when an attempt fails, and what is as old is not begun with."""
KEPT_FOR: Final = timedelta(days=30)
"""So long a message is kept after it was delivered or given up."""

_TOO_OLD: Final = "it ended more than a day before there was a webhook to tell it"


def newest_event_id(session: Session) -> int | None:
    """Number of the last event that there is a message of; None if there never was one."""
    return session.scalar(select(func.max(WebhookDelivery.event_id)))


def add_deliveries(session: Session, new: Sequence[NewDelivery], url: str) -> None:
    """Write messages that are to be sent, in order; those that are there already stay as they are.

    What ended more than :data:`TOLD_FOR` ago is written as given up: it can be tried again, and
    floods no receiver.

    Args:
        session: of a write transaction.
        new: in the order of their events.
        url: where they are to be sent, without credentials and query.
    """
    now = database_time(session)
    for one in new:
        give_up_at = one.created_at + TOLD_FOR
        is_late = give_up_at < now
        status: DeliveryStatus = "given_up" if is_late else "pending"
        values = insert(session, WebhookDelivery).values(
            id=new_id(),
            event_id=one.event_id,
            type=one.type,
            kind=one.kind,
            job_id=one.job_id,
            job_name=one.job_name,
            job_status=one.job_status,
            url=url,
            body=one.body,
            status=status,
            num_attempts=0,
            detail=_TOO_OLD if is_late else None,
            created_at=one.created_at,
            next_attempt_at=None if is_late else now,
            give_up_at=give_up_at,
            finished_at=now if is_late else None,
        )
        session.execute(values.on_conflict_do_nothing(index_elements=["event_id"]))


def is_due(session: Session) -> bool:
    """Whether the next message may be sent now; a later one never goes before it."""
    row = session.scalar(_next())
    return row is not None and _is_due(session, row)


def claim_next(session: Session, url: str, claim_seconds: float) -> ClaimedDelivery | None:
    """Take the next message to send it, unless somebody else has it, or it has to wait.

    Args:
        session: of a write transaction.
        url: where it is going to be sent, without credentials and query.
        claim_seconds: so long nobody else sends it.
    """
    row = session.scalar(_next().with_for_update(key_share=True))
    if row is None or not _is_due(session, row):
        return None
    now = database_time(session)
    row.url, row.num_attempts, row.last_attempt_at = url, row.num_attempts + 1, now
    row.next_attempt_at = now + timedelta(seconds=claim_seconds)
    return ClaimedDelivery(row.id, row.event_id, row.body, row.num_attempts)


def settle(
    session: Session,
    claimed: ClaimedDelivery,
    wanted: DeliveryStatus,
    detail: str,
    pause_seconds: float,
) -> DeliveryStatus | None:
    """Write down what came of an attempt.

    Args:
        session: of a write transaction.
        claimed: by :func:`claim_next`.
        wanted: ``pending`` tries it again, unless it is to be given up by now.
        detail: how the attempt ended, in a sentence.
        pause_seconds: before the next attempt.

    Returns:
        Where the message stands; None if somebody else has taken it meanwhile, and nothing is
        written.
    """
    row = locked(session, WebhookDelivery, claimed.id)
    if row is None or row.status != "pending" or row.num_attempts != claimed.attempt:
        return None
    now = database_time(session)
    row.status = "given_up" if wanted == "pending" and now >= row.give_up_at else wanted
    row.detail = detail
    is_over = row.status != "pending"
    row.next_attempt_at = None if is_over else now + timedelta(seconds=pause_seconds)
    row.finished_at = now if is_over else None
    return row.status


def try_again(session: Session, delivery_id: str) -> None:
    """Have one more attempt made at a message that was given up, before all others.

    It holds up nobody: when the attempt fails it is given up again. An event says who asked.

    Raises:
        NotFoundError: there is no such message.
        ConflictError: it was not given up.
    """
    known = "\0" not in delivery_id  # no text to PostgreSQL
    row = locked(session, WebhookDelivery, delivery_id) if known else None
    if row is None:
        raise unknown_delivery(delivery_id)
    if row.status != "given_up":
        raise ConflictError(
            f"webhook delivery {row.id!r} is {row.status}, and only one that was given up can be "
            "tried again"
        )
    row.status, row.finished_at = "pending", None
    row.next_attempt_at = row.give_up_at = database_time(session)
    append_event(session, "webhook_retried", {"delivery": row.id, "event": row.event_id})


def unknown_delivery(delivery_id: str) -> NotFoundError:
    """Word the error for an id that no message has."""
    return NotFoundError(
        f"there is no webhook delivery {delivery_id!r}; GET /api/v1/webhook-deliveries lists all"
    )


def any_old(session: Session) -> bool:
    """Whether there is something that :func:`forget_old` would delete."""
    return session.scalar(select(WebhookDelivery.id).where(_old(session)).limit(1)) is not None


def forget_old(session: Session) -> None:
    """Delete what has been over for :data:`KEPT_FOR`, but for the newest: it says how far it was.

    Without it, older ends would be told anew.
    """
    session.execute(delete(WebhookDelivery).where(_old(session)))


def _next() -> Select[WebhookDelivery]:
    pending = WebhookDelivery.status == "pending"
    return select(WebhookDelivery).where(pending).order_by(WebhookDelivery.event_id).limit(1)


def _is_due(session: Session, row: WebhookDelivery) -> bool:
    return row.next_attempt_at is None or row.next_attempt_at <= database_time(session)


def _old(session: Session) -> ColumnElement[bool]:
    return and_(
        WebhookDelivery.finished_at < database_time(session) - KEPT_FOR,
        WebhookDelivery.event_id < (newest_event_id(session) or 0),  # there may be none at all
    )

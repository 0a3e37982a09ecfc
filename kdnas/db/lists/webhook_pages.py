"""Messages of a webhook as a list, and one in full."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from kdnas.db.lists.job_pages import Filter, Row, one_of
from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Job, WebhookDelivery
from kdnas.db.repository.webhook_deliveries import unknown_delivery

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": WebhookDelivery.created_at,
    "status": WebhookDelivery.status,
    "num_attempts": WebhookDelivery.num_attempts,
    "next_attempt_at": WebhookDelivery.next_attempt_at,
    "finished_at": WebhookDelivery.finished_at,
}


def _of_job(session: Session, reference: str) -> ColumnElement[bool]:
    """Messages of a job by its id or a name, also of one that was deleted since."""
    return or_(
        WebhookDelivery.job_id == reference,
        WebhookDelivery.job_name == reference,
        WebhookDelivery.job_id.in_(select(Job.id).where(Job.name == reference)),
    )


FILTERS: Final[Mapping[str, Filter]] = {"status": one_of(WebhookDelivery.status), "job": _of_job}


def list_deliveries(
    session: Session,
    wanted: Mapping[str, Any],
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of messages without their bodies.

    Args:
        session: to read with.
        wanted: filter → plain value, of :data:`FILTERS`.
        sort: one of :data:`SORTS`.
        descending: from the largest down.
        limit: length of the page.
        cursor: of the page before.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = _query().where(*(FILTERS[name](session, value) for name, value in wanted.items()))
    order = Order(SORTS[sort], WebhookDelivery.id, descending)
    scope = {"list": "webhook_deliveries", "sort": sort, "descending": descending, **wanted}
    return as_dicts(read_page(session, query, order, scope, limit, cursor))


def read_delivery(session: Session, delivery_id: str) -> Row:
    """Read one message with what is told.

    Raises:
        NotFoundError: there is none with this id.
    """
    known = "\0" not in delivery_id  # no text to PostgreSQL
    query = _query().add_columns(WebhookDelivery.body).where(WebhookDelivery.id == delivery_id)
    row = session.execute(query).one_or_none() if known else None
    if row is None:
        raise unknown_delivery(delivery_id)
    found = dict(row._mapping)
    return {**found, "message": json.loads(found.pop("body"))}


def _query() -> Select[Any]:
    named = (
        *("id", "event_id", "type", "kind", "job_id", "job_status", "url", "status"),
        *("num_attempts", "detail", "created_at", "last_attempt_at", "next_attempt_at"),
        "finished_at",
    )
    return select(
        *(getattr(WebhookDelivery, name) for name in named),
        func.coalesce(Job.name, WebhookDelivery.job_name).label("job_name"),
        Job.id.is_(None).label("job_deleted"),
    ).outerjoin(Job.__table__, Job.id == WebhookDelivery.job_id)

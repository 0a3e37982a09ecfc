"""Who is told when a job has ended, and what came of each message."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, sorting
from api.http.schemas import Page
from api.webhook.schemas import (
    DeliveryQuery,
    WebhookDeliveryDetail,
    WebhookDeliveryShape,
    WebhookState,
)
from kdnas.db.engine import Session
from kdnas.db.lists import webhook_pages
from kdnas.db.queue import coordinators
from kdnas.db.repository import webhook_deliveries

DeliveryId = Annotated[str, Path(description="Id of a delivery.", max_length=200)]

router = APIRouter(tags=["webhook"])


@router.get("/webhook")
def read_webhook(database: DatabaseDep) -> WebhookState:
    """Say who is told when a job has ended."""
    with database.read() as session:
        return WebhookState(urls=coordinators.webhook_urls(session))


@router.get("/webhook-deliveries", response_model=Page[WebhookDeliveryShape])
def list_webhook_deliveries(
    query: Annotated[DeliveryQuery, Query()], database: DatabaseDep
) -> Response:
    """List the messages of the webhook, those of the last ends first unless asked otherwise."""
    sort, descending = sorting(query.sort)
    with database.read() as session:
        page = webhook_pages.list_deliveries(
            session,
            query.given,
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )
    return rendered(page)


@router.get("/webhook-deliveries/{delivery}", response_model=WebhookDeliveryDetail)
def read_webhook_delivery(delivery: DeliveryId, database: DatabaseDep) -> Response:
    """Read a message of the webhook with what it says."""
    with database.read() as session:
        return rendered(webhook_pages.read_delivery(session, delivery))


@router.post(
    "/webhook-deliveries/{delivery}/retry", status_code=202, response_model=WebhookDeliveryDetail
)
def retry_webhook_delivery(delivery: DeliveryId, once: OnceDep) -> Response:
    """Have one more attempt made at a message that was given up."""

    def act(session: Session) -> Answer:
        webhook_deliveries.try_again(session, delivery)
        session.flush()
        found = webhook_pages.read_delivery(session, delivery)
        return Answer(WebhookDeliveryDetail.model_validate(found))

    return once.answer(202, act)

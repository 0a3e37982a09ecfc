"""Shapes of the webhook's messages, and who is told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from kdnas.db.lists.webhook_pages import SORTS
from kdnas.db.records import DeliveryStatus


class WebhookState(Shape):
    """Who is told when a job has ended."""

    urls: list[str] = Field(
        description="Of the coordinators that run, without credentials and query; empty if no "
        "webhook is set up."
    )


class WebhookDeliveryShape(Shape):
    """A message of the webhook, and how far it has come."""

    id: str = Field(description="The header `webhook-id`, the same at each attempt.")
    event_id: int
    type: str
    kind: str
    job_id: str
    job_name: str | None
    job_status: str = Field(description="How the job has ended.")
    job_deleted: bool
    url: str = Field(description="Where it was sent last, without credentials and query.")
    status: DeliveryStatus
    num_attempts: int
    detail: str | None = Field(description="How the last attempt ended.")
    created_at: datetime = Field(description="When the job ended.")
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    finished_at: datetime | None = Field(description="When it was delivered or given up.")


class WebhookDeliveryDetail(WebhookDeliveryShape):
    """A message with what it says."""

    message: dict[str, Any]


class DeliveryQuery(ListQuery):
    """Which messages are wanted, and how they are sorted."""

    status: list[DeliveryStatus] = Field([], max_length=20)
    job: Text | None = Field(None, description="Id or name of a job, also of one that is deleted.")
    sort: str = Field("-created_at", pattern=sort_pattern(SORTS))

"""What the service keeps for its clients: tokens, answers, events, and what a webhook is told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from kdnas.db.base import Base, Dated, RowNumber, new_id, one_of, utc_now
from kdnas.db.models.values import DELIVERY_STATUSES, ROLES
from kdnas.db.records import DeliveryStatus


class Token(Dated, Base):
    """A token of a user; ``digest`` is the SHA-256 of it, and the token itself is kept nowhere.

    ``id`` is the part of the token that may be shown. A row stays when its token is revoked, so
    that what it did has a name.
    """

    __tablename__ = "tokens"
    __table_args__ = (one_of("role", ROLES),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    role: Mapped[str]
    digest: Mapped[bytes]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Dated, Base):
    """The answer to a request that a client may send again; ``route`` is method and path."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "created_at"),)

    route: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_fingerprint: Mapped[str]
    response_status: Mapped[int | None]
    response: Mapped[dict[str, Any] | None]


class CoordinatorRow(Base):
    """A coordinator that looks after the queue, and when it last said so.

    It takes up no job of a user of whom ``max_of_a_user`` are at work; null bounds nobody.
    ``webhook_url`` is what it tells ends to, without credentials and query; null if it tells none.
    """

    __tablename__ = "coordinators"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    max_running: Mapped[int]
    max_of_a_user: Mapped[int | None]
    num_running: Mapped[int]
    webhook_url: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(default=utc_now)
    seen_at: Mapped[datetime]


class Event(Dated, Base):
    """Something that happened; ids rise in the order of the commits (``repository.events``).

    ``job_id`` is the job that it happened to, ``root_job_id`` the one whose page tells of it: the
    first of its parents, or the job itself. Both are null for what concerns the service alone.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index(None, "job_id", "id"),
        Index(None, "root_job_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    root_job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    type: Mapped[str]
    payload: Mapped[dict[str, Any]]


class WebhookDelivery(Dated, Base):
    """A message about the end of a job, and how far it has come to its receiver.

    It outlives its job, and says of it what was so when it had ended. ``body`` is what is posted,
    the same each time, ``url`` where it was posted last, without credentials and query. A pending
    one is somebody's until ``next_attempt_at``, and then anybody's; it is given up when an attempt
    fails after ``give_up_at``. ``detail`` says how the last attempt ended.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        one_of("status", DELIVERY_STATUSES),
        UniqueConstraint("event_id"),
        Index(None, "status", "event_id"),
        Index(None, "created_at", "id"),
        Index(None, "finished_at"),
        Index(None, "job_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    event_id: Mapped[int] = mapped_column(BigInteger)
    type: Mapped[str]
    kind: Mapped[str]
    job_id: Mapped[str]
    job_name: Mapped[str | None]
    job_status: Mapped[str]
    url: Mapped[str]
    body: Mapped[str]
    status: Mapped[DeliveryStatus] = mapped_column(Text, default="pending")
    num_attempts: Mapped[int] = mapped_column(default=0)
    detail: Mapped[str | None]
    last_attempt_at: Mapped[datetime | None]
    next_attempt_at: Mapped[datetime | None]
    give_up_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

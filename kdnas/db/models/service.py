"""What the service keeps for its clients: tokens, answers to repeat, and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from kdnas.db.base import Base, Dated, RowNumber, one_of, utc_now
from kdnas.db.models.values import ROLES


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
    """

    __tablename__ = "coordinators"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    max_running: Mapped[int]
    max_of_a_user: Mapped[int | None]
    num_running: Mapped[int]
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

"""Tables of latencies, and requests to build one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from kdnas.db.base import (
    Base,
    LeaseColumns,
    WorkColumns,
    new_id,
    one_of,
    utc_now,
)
from kdnas.db.models.values import (
    STATUSES,
)


class LatencyProfile(Base):
    """A table of latencies: where and how it was measured; complete once the teacher's is known.

    ``fingerprint`` is that of device, runtime, threads, dtype and length.
    """

    __tablename__ = "latency_profiles"
    __table_args__ = (UniqueConstraint("fingerprint", "family", "teacher_fingerprint"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    fingerprint: Mapped[str]
    family: Mapped[str]
    teacher_fingerprint: Mapped[str]
    device: Mapped[str]
    runtime: Mapped[str]
    num_threads: Mapped[int]
    dtype: Mapped[str]
    length_tokens: Mapped[int]
    node: Mapped[str]
    teacher_ms: Mapped[float | None]
    quality: Mapped[dict[str, Any]] = mapped_column(default=dict)
    build_seconds: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    completed_at: Mapped[datetime | None]


class Latency(Base):
    """Milliseconds of one architecture under a profile."""

    __tablename__ = "latencies"

    profile_id: Mapped[str] = mapped_column(
        ForeignKey("latency_profiles.id", ondelete="CASCADE"), primary_key=True
    )
    architecture: Mapped[str] = mapped_column(primary_key=True)
    latency_ms: Mapped[float]
    spread_ms: Mapped[float]
    measured: Mapped[bool]


class LatencyBuild(WorkColumns, LeaseColumns, Base):
    """A latency table that somebody asked the service for.

    ``spec`` is ``{"teacher": TeacherSpec, "latency": LatencySpec, "space": SpaceSpec}`` as plain
    JSON. A coordinator claims a queued row like a search's and has ``python -m api.jobs.runner
    latency ID`` build the table; that notes ``share`` (0 to 1) on the way and ``profile_id`` at the
    end.
    """

    __tablename__ = "latency_builds"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "status", "id"),
        Index(None, "profile_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    spec: Mapped[dict[str, Any]]
    share: Mapped[float] = mapped_column(default=0.0)
    profile_id: Mapped[str | None] = mapped_column(
        ForeignKey("latency_profiles.id", ondelete="SET NULL")
    )

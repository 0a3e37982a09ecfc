"""Tables of latencies, and requests to build one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, composite, mapped_column

from kdnas import records
from kdnas.db.base import Base, Dated, new_id
from kdnas.db.models.jobs import Job, job_key


class LatencyProfile(Dated, Base):
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
    profile: Mapped[records.LatencyProfile] = composite(
        "device", "runtime", "num_threads", "dtype", "length_tokens", "node"
    )
    teacher_ms: Mapped[float | None]
    quality: Mapped[dict[str, Any]] = mapped_column(default=dict)
    build_seconds: Mapped[float | None]
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


class LatencyBuild(Job):
    """A latency table that somebody asked the service for.

    ``requested`` is ``{"teacher": TeacherSpec, "latency": LatencySpec, "space": SpaceSpec}`` as
    plain JSON; ``done`` are per cent, and ``profile_id`` is the table that came out.
    """

    __tablename__ = "latency_builds"
    __table_args__: Any = (Index(None, "profile_id"),)
    __mapper_args__ = {"polymorphic_identity": "latency_build"}

    id: Mapped[str] = job_key()
    profile_id: Mapped[str | None] = mapped_column(
        ForeignKey("latency_profiles.id", ondelete="SET NULL")
    )

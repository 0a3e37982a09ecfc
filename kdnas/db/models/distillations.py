"""Full distillations, their curves and readings; distillations for one task."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
)
from sqlalchemy.orm import Mapped, mapped_column

from kdnas.db.base import (
    Base,
    LeaseColumns,
    WorkColumns,
    new_id,
    one_of,
)
from kdnas.db.models.values import (
    OWNER_KINDS,
    STATUSES,
)


class Distillation(WorkColumns, LeaseColumns, Base):
    """A full distillation; ``search_id`` is the search whose inputs it took, if it took any."""

    __tablename__ = "distillations"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("owner_kind", OWNER_KINDS),
        Index(None, "status", "id"),
        Index(None, "search_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    architecture: Mapped[str]
    spec: Mapped[dict[str, Any]]
    owner_kind: Mapped[str]
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id", ondelete="SET NULL"))
    step: Mapped[int] = mapped_column(default=0)
    total_steps: Mapped[int | None]
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    artefact: Mapped[str | None]
    output_path: Mapped[str | None]


class DistillationCurvePoint(Base):
    """One point of a distillation's training curve."""

    __tablename__ = "distillation_curves"

    distillation_id: Mapped[str] = mapped_column(
        ForeignKey("distillations.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)
    loss: Mapped[float]
    learning_rate: Mapped[float]


class DistillationReading(Base):
    """Held-out losses of a distillation at a step."""

    __tablename__ = "distillation_readings"

    distillation_id: Mapped[str] = mapped_column(
        ForeignKey("distillations.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)
    loss_training: Mapped[float]
    loss_mean: Mapped[float]
    loss_relative: Mapped[float]
    loss_output: Mapped[float]


class TaskDistillation(WorkColumns, LeaseColumns, Base):
    """A distillation for one task, by Universal-KD or one of its baselines."""

    __tablename__ = "task_distillations"
    __table_args__ = (
        one_of("status", STATUSES),
        Index(None, "status", "id"),
        Index(None, "task", "method"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    spec: Mapped[dict[str, Any]]
    task: Mapped[str]
    method: Mapped[str]
    seed: Mapped[int]
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    artefact: Mapped[str | None]

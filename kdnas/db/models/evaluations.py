"""Evaluations, and the grids that their hyper-parameters were tuned by."""

from __future__ import annotations

from datetime import datetime
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
    utc_now,
)
from kdnas.db.models.values import (
    OWNER_KINDS,
    STATUSES,
)


class Evaluation(WorkColumns, LeaseColumns, Base):
    """A model's figures on one task of a suite with one seed; ``share`` of the work is done.

    ``spec`` of the service's has the ``request`` for this pair; once it is prepared, and of the
    command line's from the beginning, what decides the figures (``repository.evaluations``).
    """

    __tablename__ = "evaluations"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("owner_kind", OWNER_KINDS),
        Index(None, "status", "id"),
        Index(None, "model", "suite", "task"),
        Index(None, "distillation_id"),
        Index(None, "pipeline_member_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    model: Mapped[str]
    distillation_id: Mapped[str | None] = mapped_column(
        ForeignKey("distillations.id", ondelete="SET NULL")
    )
    pipeline_member_id: Mapped[str | None] = mapped_column(
        ForeignKey("pipeline_members.id", ondelete="SET NULL")
    )
    suite: Mapped[str]
    task: Mapped[str]
    seed: Mapped[int]
    spec: Mapped[dict[str, Any]]
    owner_kind: Mapped[str]
    share: Mapped[float] = mapped_column(default=0.0)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Grid(LeaseColumns, Base):
    """Trials of learning rates and epochs of a model on a task, by a key (``repository.grids``).

    ``trials`` are those that have ended; ``chosen`` is one of them, once all have.
    """

    __tablename__ = "grids"

    id: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    task: Mapped[str]
    trials: Mapped[list[Any]] = mapped_column(default=list)
    chosen: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)

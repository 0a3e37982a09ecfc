"""Full distillations, their curves and readings."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, func, select
from sqlalchemy.orm import (
    Mapped,
    Session,
    composite,
    declared_attr,
    mapped_column,
    relationship,
)

from kdnas.db.base import Base
from kdnas.db.models.evaluations import Evaluation
from kdnas.db.models.jobs import Job, job_key
from kdnas.records import Losses


class Distillation(Job):
    """A full distillation; ``search_id`` is the search whose inputs it took, if it took any."""

    __tablename__ = "distillations"
    __table_args__: Any = (Index(None, "search_id"),)
    __mapper_args__ = {"polymorphic_identity": "distillation"}

    id: Mapped[str] = job_key()
    architecture: Mapped[str]
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id", ondelete="SET NULL"))
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    artefact: Mapped[str | None]
    output_path: Mapped[str | None]
    curve: Mapped[list[DistillationCurvePoint]] = relationship(
        order_by="DistillationCurvePoint.step", viewonly=True
    )
    readings: Mapped[list[DistillationReading]] = relationship(
        order_by="DistillationReading.step", viewonly=True
    )

    resumed_by = "kdnas full-distill --resume {name}"
    listed_in = "distillations"
    told_when_created = ("architecture",)

    @property
    def result(self) -> str | None:
        """Where its student is."""
        return f"its student is in {self.output_path}" if self.output_path else None

    @property
    def outcome(self) -> dict[str, Any]:
        """Its student and the losses that came out."""
        return {
            **super().outcome,
            "architecture": self.architecture,
            "losses": dict(self.metrics),
        }

    def progress_mark(self, session: Session) -> int:
        """Return the step of its last held-out reading."""
        last = select(func.max(DistillationReading.step))
        return session.scalar(last.where(DistillationReading.distillation_id == self.id)) or 0

    def standing_on(self, session: Session) -> list[Job]:
        """Return its pipeline, and evaluations of its student."""
        scored = select(Evaluation).where(
            Evaluation.distillation_id == self.id, Evaluation.parent_id.is_(None)
        )
        return [*super().standing_on(session), *session.scalars(scored.order_by(Evaluation.id))]


class DistillationCurvePoint(Base):
    """One point of a distillation's training curve."""

    __tablename__ = "distillation_curves"

    distillation_id: Mapped[str] = mapped_column(
        ForeignKey("distillations.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)
    loss: Mapped[float]
    learning_rate: Mapped[float]


class LossColumns:
    """The four losses of a student, each in a column; ``losses`` reads and writes them all."""

    loss_training: Mapped[float]
    loss_mean: Mapped[float]
    loss_relative: Mapped[float]
    loss_output: Mapped[float]

    @declared_attr
    def losses(cls) -> Mapped[Losses]:  # noqa: N805 (SQLAlchemy calls it with the class)
        """All of them as one value."""
        return composite("loss_training", "loss_mean", "loss_relative", "loss_output")


class DistillationReading(LossColumns, Base):
    """Held-out losses of a distillation at a step."""

    __tablename__ = "distillation_readings"

    distillation_id: Mapped[str] = mapped_column(
        ForeignKey("distillations.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)

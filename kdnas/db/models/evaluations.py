"""Evaluations, and the grids that their hyper-parameters were tuned by."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, Session, mapped_column

from kdnas.db.base import Base, Dated, LeaseColumns
from kdnas.db.models.jobs import Job, job_key


class Evaluation(Job):
    """A model's figures on one task of a suite with one seed.

    ``resolved`` is what decides the figures, with a ``key`` that names it
    (``repository.evaluations``). ``done`` of ``total`` are steps of its training.
    """

    __tablename__ = "evaluations"
    __table_args__: Any = (
        Index(None, "model", "suite", "task"),
        Index(None, "distillation_id"),
        Index(None, "pipeline_member_id"),
    )
    __mapper_args__ = {"polymorphic_identity": "evaluation"}

    id: Mapped[str] = job_key()
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
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)

    resumed_by = "the `kdnas evaluate` that started it, run again"

    @property
    def called(self) -> str:
        """What it is called in a sentence."""
        return f"the evaluation on {self.task} with seed {self.seed}"

    @property
    def about(self) -> dict[str, Any]:
        """What its events say of it besides what happened."""
        named = {name: getattr(self, name) for name in ("model", "suite", "task", "seed")}
        return {"evaluation": self.id, **named}

    @property
    def outcome(self) -> dict[str, Any]:
        """What was evaluated, and the score."""
        about = {name: value for name, value in self.about.items() if name != "evaluation"}
        return {"id": self.id, **about, "score": self.metrics.get("main")}

    def event_root(self, session: Session) -> str:
        """Return the pipeline's, or the distillation whose student it evaluates, or itself."""
        if self.parent_id is None and self.distillation_id is not None:
            return session.get_one(Job, self.distillation_id).event_root(session)
        return super().event_root(session)


class Grid(LeaseColumns, Dated, Base):
    """Trials of hyper-parameters of a model on a task, by a key (``repository.grids``).

    Evaluations try learning rates and epochs, and distillations for a task batch sizes, learning
    rates and β, each in their own words.
    ``trials`` are those that have ended; ``chosen`` is one of them, once all have.
    """

    __tablename__ = "grids"

    id: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    task: Mapped[str]
    trials: Mapped[list[Any]] = mapped_column(default=list)
    chosen: Mapped[dict[str, Any] | None]

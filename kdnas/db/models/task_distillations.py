"""Distillations for one task, and what each of their runs came to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from kdnas.db.base import Base, utc_now
from kdnas.db.models.jobs import Job, job_key


class TaskDistillation(Job):
    """Distillations for one task: their job, and what preparing them has found out.

    ``task`` is called as papers write it, ``student`` as it was asked for. ``facts`` is a
    :class:`~kdnas.records.TaskFacts` as JSON, null until it was prepared; ``done`` are runs, each
    method's and seed's by itself.
    """

    __tablename__ = "task_distillations"
    __table_args__: Any = (Index(None, "task"),)
    __mapper_args__ = {"polymorphic_identity": "task_distillation"}

    id: Mapped[str] = job_key()
    task: Mapped[str]
    student: Mapped[str]
    facts: Mapped[dict[str, Any] | None]

    resumed_by = "kdnas task-distill --resume {name}"
    listed_in = "task-distillations"
    told_when_created = ("task", "student")

    @property
    def result(self) -> str | None:
        """Where its students are, if they were to go somewhere and all of it is done."""
        output = self.spec.get("output")
        made = output is not None and self.status == "succeeded"
        return f"what it made is in {output}" if made else None

    @property
    def outcome(self) -> dict[str, Any]:
        """For which task which student was distilled."""
        return {**super().outcome, "task": self.task, "student": self.student}

    def progress_mark(self, session: Session) -> int:
        """Count the runs that are done."""
        query = select(func.count()).where(TaskDistillationRun.task_distillation_id == self.id)
        return session.scalar(query) or 0

    @classmethod
    def count_failed(cls, session: Session, ids: Collection[str]) -> Mapping[str, int]:
        """Count the runs that failed."""
        of = TaskDistillationRun.task_distillation_id
        query = (
            select(of, func.count())
            .where(of.in_(ids), TaskDistillationRun.error.is_not(None))
            .group_by(of)
        )
        return dict(session.execute(query).all())

    def try_again(self, session: Session) -> None:
        """Note it beside the facts; the runs are forgotten no sooner than it can go on."""
        if self.facts is not None:
            self.facts = {**self.facts, TRY_AGAIN: True}


TRY_AGAIN = "try_again"
"""Entry beside the facts: whether runs that failed are to be forgotten when it goes on."""


class TaskDistillationRun(Base):
    """What a student came to by one method with one seed: a :class:`~kdnas.records.TaskRun`.

    ``error`` says why it came to nothing; its scores are null then.
    """

    __tablename__ = "task_distillation_runs"

    task_distillation_id: Mapped[str] = mapped_column(
        ForeignKey("task_distillations.id", ondelete="CASCADE"), primary_key=True
    )
    method: Mapped[str] = mapped_column(primary_key=True)
    seed: Mapped[int] = mapped_column(primary_key=True)
    main: Mapped[float | None]
    metrics: Mapped[dict[str, Any]]
    held_out: Mapped[float | None]
    chosen: Mapped[dict[str, Any]]
    curve: Mapped[list[Any]]
    attention: Mapped[list[Any]]
    samples: Mapped[list[Any]]
    steps: Mapped[int]
    seconds: Mapped[float]
    error: Mapped[str | None]
    finished_at: Mapped[datetime] = mapped_column(default=utc_now)

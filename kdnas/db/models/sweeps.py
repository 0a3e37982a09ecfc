"""Sweeps, and what each of their states came to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from kdnas.db.base import Base, utc_now
from kdnas.db.models.jobs import Job, job_key


class Sweep(Job):
    """A sweep: its job, and what preparing it has found out.

    ``facts`` is a :class:`~kdnas.records.SweepFacts` as JSON, null until it was prepared; ``done``
    are states, each seed's by itself.
    """

    __tablename__ = "sweeps"
    __mapper_args__ = {"polymorphic_identity": "sweep"}

    id: Mapped[str] = job_key()
    facts: Mapped[dict[str, Any] | None]

    resumed_by = "kdnas sweep --resume {name}"

    def progress_mark(self, session: Session) -> int:
        """Count the states that are done."""
        query = select(func.count()).where(SweepState.sweep_id == self.id)
        return session.scalar(query) or 0

    @classmethod
    def count_failed(cls, session: Session, ids: Collection[str]) -> Mapping[str, int]:
        """Count the states that failed."""
        query = (
            select(SweepState.sweep_id, func.count())
            .where(SweepState.sweep_id.in_(ids), SweepState.error.is_not(None))
            .group_by(SweepState.sweep_id)
        )
        return dict(session.execute(query).all())

    def try_again(self, session: Session) -> None:
        """Note it beside the facts; the states are forgotten no sooner than it can go on."""
        if self.facts is not None:
            self.facts = {**self.facts, "try_again": True}


class SweepState(Base):
    """A state of a sweep under one of its seeds.

    ``readings`` is a list of [step, mean, relative, output, training], losses of
    :class:`~kdnas.records.Losses`; the last is null before the first step. ``error`` says why it
    was not read to the end.
    """

    __tablename__ = "sweep_states"

    sweep_id: Mapped[str] = mapped_column(
        ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True
    )
    seed: Mapped[int] = mapped_column(primary_key=True)
    state_index: Mapped[int] = mapped_column(primary_key=True)
    architecture: Mapped[str]
    readings: Mapped[list[Any]]
    error: Mapped[str | None]
    train_seconds: Mapped[float]
    finished_at: Mapped[datetime] = mapped_column(default=utc_now)

"""Searches, their episodes and candidates, and the look-up table of losses."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship

from kdnas.db.base import (
    Base,
    Dated,
    RowNumber,
    new_id,
    one_of,
    utc_now,
)
from kdnas.db.models.distillations import Distillation, LossColumns
from kdnas.db.models.jobs import Job, job_key
from kdnas.db.models.values import (
    ATTEMPT_OUTCOMES,
    CANDIDATE_STATUSES,
)
from kdnas.records import Losses


class Search(Job):
    """A search: its job, and what preparing it has found out.

    ``facts`` is a :class:`~kdnas.records.SearchFacts` as JSON, null until it was prepared.
    """

    __tablename__ = "searches"
    __mapper_args__ = {"polymorphic_identity": "search"}

    id: Mapped[str] = job_key()
    facts: Mapped[dict[str, Any] | None]

    resumed_by = "kdnas search --resume {name}"
    listed_in = "searches"

    def progress_mark(self, session: Session) -> int:
        """Count the candidates that have ended."""
        ended = (Candidate.search_id == self.id, Candidate.finished_at.is_not(None))
        return session.scalar(select(func.count()).where(*ended)) or 0

    def standing_on(self, session: Session) -> list[Job]:
        """Return its pipeline, and distillations that took their inputs from it."""
        taken = select(Distillation).where(
            Distillation.search_id == self.id,
            or_(
                Distillation.parent_id.is_(None),
                Distillation.parent_id.is_distinct_from(self.parent_id),
            ),
        )
        return [*super().standing_on(session), *session.scalars(taken.order_by(Distillation.id))]

    def before_delete(self, session: Session) -> None:
        """Lock its candidates first, as a late result does."""
        own = select(Candidate.id).where(Candidate.search_id == self.id)
        session.execute(own.with_for_update())


class Episode(Base):
    """A round of a search, numbered from 1; bests are indices of states in the space."""

    __tablename__ = "episodes"
    __table_args__: Any = (CheckConstraint("number >= 1", name="number"),)

    search_id: Mapped[str] = mapped_column(
        ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    epsilon: Mapped[float | None]
    global_best: Mapped[int | None]
    previous_best: Mapped[int | None]
    controller_loss: Mapped[float | None]
    started_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]
    candidates: Mapped[list[Candidate]] = relationship(
        order_by="Candidate.position", passive_deletes=True
    )


class MiniKDContext(Dated, Base):
    """What a context's fingerprint stands for; ``content`` is null until somebody says it."""

    __tablename__ = "mini_kd_contexts"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[dict[str, Any] | None]


class DistillationLoss(LossColumns, Dated, Base):
    """The look-up table of losses: context, architecture, repeat (from 1) → losses and curve.

    ``curve`` is a list of [step, loss, learning rate]; ``loss_start`` the relative loss before the
    first step, null where it was not read.
    """

    __tablename__ = "distillation_losses"
    __table_args__ = (
        UniqueConstraint("context", "architecture", "repeat"),
        CheckConstraint("repeat >= 1", name="repeat"),
    )

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    context: Mapped[str] = mapped_column(ForeignKey("mini_kd_contexts.fingerprint"))
    architecture: Mapped[str]
    repeat: Mapped[int]
    loss_start: Mapped[float | None]
    curve: Mapped[list[Any]]
    num_steps: Mapped[int]
    train_seconds: Mapped[float]


class Candidate(Dated, Base):
    """An architecture proposed in a search; its five numbers are columns, so that they filter.

    One that failed has no reward; it has losses if it was trained to the end and has not learned.
    ``readings`` are those at the rungs of its search, each a list of [step, mean, relative, output,
    training], null without any; ``num_steps`` those that its own training made.

    The indices serve a table of 100 000 candidates that is sorted by any column of figures, from
    either end.
    """

    __tablename__ = "candidates"
    __table_args__ = (
        ForeignKeyConstraint(
            ["search_id", "episode"],
            ["episodes.search_id", "episodes.number"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("search_id", "episode", "position"),
        one_of("status", CANDIDATE_STATUSES),
        Index(None, "search_id", "status"),
        Index(None, "search_id", "architecture"),
        Index(None, "search_id", "reward", "id"),
        Index(None, "search_id", "predicted_reward", "id"),
        Index(None, "search_id", "loss_relative", "id"),
        Index(None, "search_id", "loss_output", "id"),
        Index(None, "search_id", "loss_mean", "id"),
        Index(None, "search_id", "loss_start", "id"),
        Index(None, "search_id", "latency_ms", "id"),
        Index(None, "search_id", "params_millions", "id"),
        Index(None, "search_id", "episode", "id"),
        Index(None, "search_id", "state_index", "id"),
        Index(None, "search_id", "created_at", "id"),
        Index(None, "distillation_loss_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    search_id: Mapped[str]
    episode: Mapped[int]
    position: Mapped[int]
    state_index: Mapped[int]
    architecture: Mapped[str]
    layers: Mapped[int]
    heads: Mapped[int]
    hidden: Mapped[int]
    intermediate: Mapped[int]
    activation: Mapped[str]
    source: Mapped[str]
    predicted_reward: Mapped[float | None]
    status: Mapped[str]
    latency_ms: Mapped[float | None]
    latency_ratio: Mapped[float | None]
    params_millions: Mapped[float | None]
    loss_training: Mapped[float | None]
    loss_mean: Mapped[float | None]
    loss_relative: Mapped[float | None]
    loss_output: Mapped[float | None]
    loss_start: Mapped[float | None]
    reward: Mapped[float | None]
    reused: Mapped[bool] = mapped_column(default=False)
    num_attempts: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None]
    note: Mapped[str | None]
    readings: Mapped[list[Any] | None]
    num_steps: Mapped[int | None]
    distillation_loss_id: Mapped[int | None] = mapped_column(
        RowNumber, ForeignKey("distillation_losses.id")
    )
    finished_at: Mapped[datetime | None]

    @property
    def losses(self) -> Losses | None:
        """All four as one value (a composite would cost a third more where many rows are read)."""
        values = (self.loss_training, self.loss_mean, self.loss_relative, self.loss_output)
        return None if None in values else Losses(*cast(tuple[float, ...], values))

    @losses.setter
    def losses(self, losses: Losses) -> None:
        self.loss_training, self.loss_mean = losses.training, losses.mean
        self.loss_relative, self.loss_output = losses.relative, losses.output


class SearchState(Base):
    """A state of the space in one search: how often it was proposed, and what came of it.

    There are a few thousand of them whatever the number of candidates, so everything that looks
    at each state once (ranking, Pareto front, coverage, summary) reads this table.

    ``candidate_id`` is the first candidate of the state, by episode and position, that has a
    reward; it stands for the state. ``trained``: one of its candidates succeeded with losses of
    its own; ``failed``: one of them failed; ``stopped``: one of them was stopped at a rung.
    """

    __tablename__ = "search_states"
    __table_args__ = (Index(None, "candidate_id"),)

    search_id: Mapped[str] = mapped_column(
        ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
    )
    state_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    architecture: Mapped[str]
    num_candidates: Mapped[int] = mapped_column(default=0)
    num_finished: Mapped[int] = mapped_column(default=0)
    num_attempts: Mapped[int] = mapped_column(default=0)
    trained: Mapped[bool] = mapped_column(default=False)
    failed: Mapped[bool] = mapped_column(default=False)
    stopped: Mapped[bool] = mapped_column(default=False)
    candidate_id: Mapped[str | None] = mapped_column(
        ForeignKey("candidates.id", ondelete="CASCADE")
    )


class Attempt(Base):
    """One training of a candidate on a worker; at most one of a candidate is open."""

    __tablename__ = "attempts"
    __table_args__ = (
        one_of("outcome", ATTEMPT_OUTCOMES),
        CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="closed"),
        Index(None, "candidate_id"),
        Index(
            "uq_attempts_open",
            "candidate_id",
            unique=True,
            sqlite_where=text("finished_at IS NULL"),
            postgresql_where=text("finished_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidates.id", ondelete="CASCADE"))
    worker: Mapped[str]
    outcome: Mapped[str | None]
    error: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]


class ControllerState(Dated, Base):
    """The strategy's state after the last finished episode of a search."""

    __tablename__ = "controller_states"

    search_id: Mapped[str] = mapped_column(
        ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
    )
    episode: Mapped[int]
    state: Mapped[bytes]

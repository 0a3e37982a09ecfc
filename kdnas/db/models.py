"""All tables. Times are UTC and end in ``_at``; other units are in the names.

::

    searches ─┬─ episodes ── candidates ─┬─ attempts
              ├─ search_states           └─ distillation_losses ── mini_kd_contexts
              ├─ controller_states
              └─ events
    latency_profiles ─┬─ latencies
                      └─ latency_builds
    distillations ─┬─ distillation_curves
                   ├─ distillation_readings
                   └─ evaluations
    pipelines ── pipeline_members ─┬─ distillations
                                   └─ evaluations
    grids · task_distillations · idempotency_keys
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from kdnas.db.base import (
    Base,
    LeaseColumns,
    RowNumber,
    WorkColumns,
    new_id,
    one_of,
    utc_now,
)
from kdnas.records import CandidateStatus, MemberRole, PipelineStage, SearchStatus

STATUSES: tuple[str, ...] = get_args(SearchStatus)
FINAL_STATUSES = ("succeeded", "failed", "cancelled")
CANDIDATE_STATUSES: tuple[str, ...] = get_args(CandidateStatus)
OWNER_KINDS = ("cli", "service")
PIPELINE_STAGES: tuple[str, ...] = get_args(PipelineStage)
MEMBER_ROLES: tuple[str, ...] = get_args(MemberRole)
ATTEMPT_OUTCOMES = ("succeeded", "failed", "interrupted")


class Search(WorkColumns, LeaseColumns, Base):
    """A search: what was asked for, and where it stands.

    ``facts`` is a :class:`~kdnas.records.SearchFacts` as JSON, null until it was prepared.
    """

    __tablename__ = "searches"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("owner_kind", OWNER_KINDS),
        Index(None, "status", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    spec: Mapped[dict[str, Any]]
    facts: Mapped[dict[str, Any] | None]
    owner_kind: Mapped[str]


class Episode(Base):
    """A round of a search, numbered from 1; bests are indices of states in the space."""

    __tablename__ = "episodes"
    __table_args__ = (CheckConstraint("number >= 1", name="number"),)

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


class MiniKDContext(Base):
    """What a context's fingerprint stands for; ``content`` is null until somebody says it."""

    __tablename__ = "mini_kd_contexts"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class DistillationLoss(Base):
    """The look-up table of losses: context, architecture, repeat (from 1) → losses and curve.

    ``curve`` is a list of [step, loss, learning rate].
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
    loss_training: Mapped[float]
    loss_mean: Mapped[float]
    loss_relative: Mapped[float]
    loss_output: Mapped[float]
    curve: Mapped[list[Any]]
    num_steps: Mapped[int]
    train_seconds: Mapped[float]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Candidate(Base):
    """An architecture proposed in a search; its five numbers are columns, so that they filter.

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
    reward: Mapped[float | None]
    reused: Mapped[bool] = mapped_column(default=False)
    num_attempts: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None]
    note: Mapped[str | None]
    distillation_loss_id: Mapped[int | None] = mapped_column(
        RowNumber, ForeignKey("distillation_losses.id")
    )
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]


class SearchState(Base):
    """A state of the space in one search: how often it was proposed, and what came of it.

    There are a few thousand of them whatever the number of candidates, so everything that looks
    at each state once (ranking, Pareto front, coverage, summary) reads this table.

    ``candidate_id`` is the first candidate of the state, by episode and position, that has a
    reward; it stands for the state. ``trained``: one of its candidates succeeded with losses of
    its own; ``failed``: one of them failed.
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


class ControllerState(Base):
    """The strategy's state after the last finished episode of a search."""

    __tablename__ = "controller_states"

    search_id: Mapped[str] = mapped_column(
        ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
    )
    episode: Mapped[int]
    state: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


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
    JSON. A coordinator claims a queued row like a search's and has ``python -m api.runner latency
    ID`` build the table; that notes ``share`` (0 to 1) on the way and ``profile_id`` at the end.
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


class Pipeline(WorkColumns, LeaseColumns, Base):
    """Search, then distillation, then evaluation, as one request.

    ``notes`` are sentences for the reader of its results, such as a budget under which the search
    found nothing.
    """

    __tablename__ = "pipelines"
    __table_args__ = (
        one_of("status", STATUSES),
        one_of("owner_kind", OWNER_KINDS),
        one_of("stage", PIPELINE_STAGES),
        Index(None, "status", "id"),
        Index(None, "search_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    spec: Mapped[dict[str, Any]]
    owner_kind: Mapped[str]
    stage: Mapped[str] = mapped_column(default="search")
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id", ondelete="SET NULL"))
    notes: Mapped[list[Any]] = mapped_column(default=list)


class PipelineMember(Base):
    """A model of a pipeline: a student that is distilled and evaluated, or a form of the teacher.

    ``reasons`` is a list of {``role``, ``about``}: an architecture that was both chosen and asked
    for as a baseline is one member with two reasons. ``figures`` are what the search knows of it
    (:class:`~kdnas.db.records.MemberFigures`). ``variant`` says what is done to the teacher before
    it is evaluated, as entries of an evaluation's request.
    """

    __tablename__ = "pipeline_members"
    __table_args__ = (
        one_of("role", MEMBER_ROLES),
        UniqueConstraint("pipeline_id", "position"),
        UniqueConstraint("pipeline_id", "architecture"),
        Index(None, "distillation_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    pipeline_id: Mapped[str] = mapped_column(ForeignKey("pipelines.id", ondelete="CASCADE"))
    position: Mapped[int]
    role: Mapped[str]
    architecture: Mapped[str | None]
    reasons: Mapped[list[Any]]
    figures: Mapped[dict[str, Any]]
    variant: Mapped[dict[str, Any] | None]
    distillation_id: Mapped[str | None] = mapped_column(
        ForeignKey("distillations.id", ondelete="SET NULL")
    )


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


class IdempotencyKey(Base):
    """The answer to a request that a client may send again; ``route`` is method and path."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "created_at"),)

    route: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_fingerprint: Mapped[str]
    response_status: Mapped[int | None]
    response: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class Event(Base):
    """Something that happened; ids rise in the order of the commits (``repository.events``)."""

    __tablename__ = "events"
    __table_args__ = (
        Index(None, "search_id", "id"),
        Index(None, "distillation_id", "id"),
        Index(None, "pipeline_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowNumber, primary_key=True)
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id", ondelete="CASCADE"))
    distillation_id: Mapped[str | None] = mapped_column(
        ForeignKey("distillations.id", ondelete="CASCADE")
    )
    pipeline_id: Mapped[str | None] = mapped_column(ForeignKey("pipelines.id", ondelete="SET NULL"))
    type: Mapped[str]
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)

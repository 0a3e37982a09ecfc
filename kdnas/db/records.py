"""Values that the database gives out besides those of :mod:`kdnas.records`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kdnas.architecture import Architecture
from kdnas.records import (
    CurvePoint,
    LatencyProfile,
    Losses,
    MemberRole,
    PipelineStage,
    SearchStatus,
)

OwnerKind = Literal["cli", "service"]


@dataclass(frozen=True, slots=True)
class DistillationRecord:
    """A stored full distillation without its curve."""

    id: str
    name: str
    architecture: Architecture
    spec: Mapping[str, Any]
    status: SearchStatus
    owner_kind: OwnerKind
    step: int
    total_steps: int | None
    metrics: Mapping[str, Any]
    artefact: str | None
    output_path: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """A stored evaluation of a model on a task with a seed.

    ``resolved`` is what decides its figures, None until model and data were read.
    """

    id: str
    model: str
    distillation_id: str | None
    pipeline_member_id: str | None
    suite: str
    task: str
    seed: int
    requested: Mapping[str, Any]
    resolved: Mapping[str, Any] | None
    metrics: Mapping[str, Any]
    status: SearchStatus
    owner_kind: OwnerKind
    share: float
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def decides(self) -> Mapping[str, Any]:
        """What decides its figures; nothing until model and data were read."""
        return self.resolved or {}


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A stored pipeline without its members."""

    id: str
    name: str
    spec: Mapping[str, Any]
    status: SearchStatus
    owner_kind: OwnerKind
    stage: PipelineStage
    search_id: str | None
    notes: tuple[str, ...]
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a model is in a pipeline: in which role, and what is said of it, such as ``top 1``."""

    role: MemberRole
    about: str


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """What the search knows of a student; None where it was not explored or measured."""

    reward: float | None = None
    loss_relative: float | None = None
    loss_output: float | None = None
    latency_ms: float | None = None
    latency_ratio: float | None = None
    params_millions: float | None = None


@dataclass(frozen=True, slots=True)
class NewMember:
    """A model that is to be part of a pipeline; the first reason's role counts.

    An architecture is there once, and once more in the role ``undistilled``. ``architecture`` is
    None for the teacher, and ``variant`` says what is done to it, such as ``{"int8": True}``.
    """

    reasons: tuple[Reason, ...]
    architecture: Architecture | None = None
    figures: MemberFigures = MemberFigures()
    variant: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A model of a pipeline, with where its distillation and its evaluations stand.

    ``distillation`` is None for the teacher and its variants, which have no ``architecture``, and
    of a student whose distillation was deleted; that of a student in the role ``undistilled`` has
    no steps. ``evaluations`` are empty until they are asked for.
    """

    id: str
    pipeline_id: str
    position: int
    role: MemberRole
    reasons: tuple[Reason, ...]
    architecture: Architecture | None
    figures: MemberFigures
    variant: Mapping[str, Any] | None
    distillation: DistillationRecord | None
    evaluations: tuple[EvaluationRecord, ...]


@dataclass(frozen=True, slots=True)
class HeldOutReading:
    """Held-out losses of a distillation at a step."""

    step: int
    losses: Losses


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who works on a row at present: kind (``cli`` or ``service``), host and process number."""

    kind: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class DistillationOverview:
    """A distillation with what is beside its row: its newest reading, and who works on it."""

    record: DistillationRecord
    reading: HeldOutReading | None
    holder: LeaseHolder | None

    @property
    def abandoned(self) -> bool:
        """Whether its process died: its status says that it runs, and nobody works on it."""
        return self.record.status == "running" and self.holder is None

    @property
    def relative(self) -> float | None:
        """Relative held-out loss: the result's, else the newest reading's."""
        found = self.record.metrics.get("relative")
        if found is not None:
            return float(found)
        return None if self.reading is None else self.reading.losses.relative


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened.

    ``job_id`` and ``kind`` are those of the job that it happened to, ``root_job_id`` that of the
    job whose page tells of it; None for what concerns the service alone.
    """

    id: int
    type: str
    payload: Mapping[str, Any]
    kind: str | None
    job_id: str | None
    root_job_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LatencyProfileRecord:
    """A latency table without its entries; ``complete`` once the teacher is in it."""

    id: str
    profile: LatencyProfile
    family: str
    teacher_fingerprint: str
    teacher_ms: float | None
    quality: Mapping[str, float]
    num_entries: int
    complete: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LatencyBuildRecord:
    """A latency table that the service builds; ``profile_id`` names it once it is there."""

    id: str
    spec: Mapping[str, Any]
    status: SearchStatus
    share: float
    profile_id: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class LossRecord:
    """One row of the loss look-up table."""

    context: str
    architecture: Architecture
    repeat: int
    losses: Losses
    curve: tuple[CurvePoint, ...]
    steps: int
    train_seconds: float
    created_at: datetime
    loss_start: float | None = None

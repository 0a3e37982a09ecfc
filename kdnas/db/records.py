"""Values that the database gives out besides those of :mod:`kdnas.records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from kdnas.architecture import Architecture
from kdnas.records import JobRecord, Losses, MemberRole, PipelineStage, Role

OwnerKind = Literal["cli", "service"]
DeliveryStatus = Literal["pending", "delivered", "given_up"]
Record = TypeVar("Record")


def record_of(row: object, kind: type[Record], **own: Any) -> Record:
    """Copy a row into a record: columns by the names of its fields, and what is given in ``own``.

    Args:
        row: mapped, or of a query's result.
        kind: a dataclass.
        own: fields that the row has not, or holds otherwise.
    """
    names = [name for name in cast(Any, kind).__dataclass_fields__ if name not in own]
    return kind(**{name: getattr(row, name) for name in names}, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationRecord(JobRecord):
    """A stored full distillation without its curve."""

    architecture: Architecture
    step: int
    total_steps: int | None
    metrics: Mapping[str, Any]
    artefact: str | None
    output_path: str | None

    @property
    def student(self) -> str | None:
        """Whole path of the folder of its student; None before that is there."""
        return None if self.output_path is None else str(Path(self.output_path).absolute())


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord(JobRecord):
    """A stored evaluation of a model on a task with a seed.

    ``resolved`` is what decides its figures, None until model and data were read.
    """

    model: str
    distillation_id: str | None
    pipeline_member_id: str | None
    suite: str
    task: str
    seed: int
    requested: Mapping[str, Any]
    resolved: Mapping[str, Any] | None
    metrics: Mapping[str, Any]
    share: float

    @property
    def decides(self) -> Mapping[str, Any]:
        """What decides its figures; nothing until model and data were read."""
        return self.resolved or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDistillationRecord(JobRecord):
    """Stored distillations for a task; task and student are as they were asked for."""

    task: str
    student: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord(JobRecord):
    """A stored pipeline without its members."""

    stage: PipelineStage
    search_id: str | None
    notes: Sequence[str]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord(NewMember):
    """A model of a pipeline as it is stored, with where its distillation and evaluations stand.

    ``distillation`` is None for the teacher and its variants, and of a student whose distillation
    was deleted; that of a student in the role ``undistilled`` has no steps. ``task_distillations``
    are those that the pipeline has asked for of its student, a task each.
    """

    id: str
    pipeline_id: str
    position: int
    role: MemberRole
    distillation: DistillationRecord | None
    evaluations: tuple[EvaluationRecord, ...]
    task_distillations: tuple[TaskDistillationRecord, ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether the search chose it, whatever else it is there for."""
        return any(reason.role == "chosen" for reason in self.reasons)


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
class TokenRecord:
    """What is kept of a user's token.

    ``digest`` is the SHA-256 of the whole token, ``id`` the part of it that may be shown.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    digest: bytes = field(repr=False)

    def is_over(self, now: datetime) -> bool:
        """Whether its time has passed."""
        return self.expires_at is not None and self.expires_at <= now


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
class NewDelivery:
    """A message of a webhook that is to be sent: which end of which job it tells, and its body.

    ``created_at`` is when the job ended.
    """

    event_id: int
    type: str
    kind: str
    job_id: str
    job_name: str | None
    job_status: str
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A message of a webhook that its claimer may send now; ``attempt`` counts from 1."""

    id: str
    event_id: int
    body: str
    attempt: int

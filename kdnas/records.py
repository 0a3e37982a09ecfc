"""Value types that cross rooms: they hold numbers and names, and know neither torch nor SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from kdnas.architecture import Architecture

SearchStatus = Literal["queued", "running", "paused", "cancelled", "failed", "succeeded"]
CandidateStatus = Literal["proposed", "running", "succeeded", "failed", "stopped"]
CANDIDATE_ENDS: tuple[CandidateStatus, ...] = ("succeeded", "failed", "stopped")
"""What a candidate is when it is done."""
LossName = Literal["relative", "output", "mean"]
Role = Literal["operator", "viewer"]
PipelineStage = Literal["search", "distillation", "evaluation", "done"]
MemberRole = Literal["chosen", "baseline", "random", "undistilled", "teacher", "variant"]


def fingerprint(value: Any) -> str:
    """Name a JSON-able value by its content: 16 hexadecimal digits of SHA-256.

    Mappings are written with sorted keys, so equal contents have equal fingerprints.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TeacherShape:
    """What the search must know of a teacher without loading its weights.

    ``model_type`` is the Hugging Face name of the family (``bert``, ``roberta``, …);
    ``fingerprint`` names configuration, weights and tokenizer by their content;
    ``embedding_size`` is the width of its tables in a family that can give them another width than
    its layers (ELECTRA), and None in the others.
    """

    model_type: str
    layers: int
    heads: int
    hidden: int
    intermediate: int
    activation: str
    vocab_size: int
    max_positions: int
    type_vocab_size: int
    fingerprint: str
    embedding_size: int | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of one student, all but ``training`` read on the held-out split in float32.

    Attributes:
        training: the objective's own value at the last step (Trivedi Eq. 1 for HS).
        mean: mean over mapped pairs; what Trivedi's Table 3 shows. Not comparable between depths.
        relative: mean over pairs of L / L₀; 0 is perfect, 1 is a student that ignores its input.
        output: the ratio of the one pair (L^S, L^T) that students of every depth share.
    """

    training: float
    mean: float
    relative: float
    output: float

    def named(self, name: LossName) -> float:
        """Return the loss that a reward asks for by name."""
        return {"relative": self.relative, "output": self.output, "mean": self.mean}[name]


@dataclass(frozen=True, slots=True)
class KnownLosses:
    """What the look-up table holds of a state.

    Attributes:
        losses: after the training.
        loss_start: the held-out relative loss before the first step; None where it was not read.
    """

    losses: Losses
    loss_start: float | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a training curve: mean training loss since the last point, rate of learning."""

    step: int
    loss: float
    learning_rate: float


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """How a short trial with one teacher layer ended (``teacher_layer: search``).

    Attributes:
        teacher_layer: the layer that the student learned from.
        relative: held-out relative loss against that layer; not comparable between layers.
        probe: unexplained share of the teacher's last hidden state; the smallest is chosen.
    """

    teacher_layer: int
    relative: float
    probe: float


@dataclass(frozen=True, slots=True)
class MiniKDContext:
    """Everything beside the architecture that decides a student's losses.

    A worker is built for one context and trains any number of architectures in it. The store
    fingerprints bring teacher and corpus to a node; no path of another machine is in here.

    Attributes:
        teacher: fingerprint of the teacher's artefact in the store.
        corpus: fingerprint of the tokenised corpus in the store.
        objective: the objective's spec as plain JSON.
        student: the student's start as plain JSON.
        proxy: the proxy's spec as plain JSON, its seed included.
        dtype: ``float32`` or ``bfloat16``: how the forward passes of training run.
        engine_version: see :data:`kdnas.ENGINE_VERSION`.
    """

    teacher: str
    corpus: str
    objective: Mapping[str, Any]
    student: Mapping[str, Any]
    proxy: Mapping[str, Any]
    dtype: str
    engine_version: str

    @property
    def fingerprint(self) -> str:
        """Key of the loss look-up table, together with an architecture and a repeat."""
        return fingerprint(asdict(self))

    @property
    def start(self) -> str:
        """Names what decides how a student starts and is read: all but how it is trained then."""
        proxy = {name: self.proxy.get(name) for name in ("seed", "held_out")}
        return fingerprint({**asdict(self), "proxy": proxy})


@dataclass(frozen=True, slots=True)
class Reading:
    """A student's held-out losses after a step; before the first one after step 0.

    ``losses.training`` is not a number before the first step.
    """

    step: int
    losses: Losses


@dataclass(frozen=True, slots=True)
class Rung:
    """A step after which a student ends unless its held-out loss is low enough by then.

    Attributes:
        step: after which it is read.
        most: that its loss may be to go on.
        loss: which one.
    """

    step: int
    most: float
    loss: LossName = "relative"

    def stops(self, reading: Reading) -> bool:
        """Whether a student with this reading ends here."""
        return reading.step == self.step and reading.losses.named(self.loss) > self.most


@dataclass(frozen=True, slots=True)
class MiniKDRequest:
    """One student to train. ``candidate_id`` comes back with the result.

    Attributes:
        candidate_id: names the student.
        architecture: of the student.
        read_after: steps after which its held-out losses are read on the way, which changes
            nothing of its training; start and end are read always.
        last_step: after which it ends, if that is before the schedule does; 0 trains nothing.
        rungs: where it ends early if it is not good enough; its losses are read there as well.
    """

    candidate_id: str
    architecture: Architecture
    read_after: tuple[int, ...] = ()
    last_step: int | None = None
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True, slots=True)
class MiniKDResult:
    """What a worker has to say of one student: losses, or the reason why it is no success.

    Attributes:
        candidate_id: of the request.
        architecture: of the student.
        losses: at the end; None of a student that was not trained to the end.
        error: why the student is no success; None of one that is, and of one that was stopped.
        steps: steps made.
        train_seconds: its share of the time that its group took.
        curve: of its training.
        loss_start: its held-out relative loss before the first step, read as the losses at the
            end are; None where it was not read.
        readings: of its held-out losses, in the order of steps.
        gave_up: whether it has an error because its worker died each time, for want of memory for
            example: its own fault, or that of the machine.
    """

    candidate_id: str
    architecture: Architecture
    losses: Losses | None
    error: str | None
    steps: int
    train_seconds: float
    curve: tuple[CurvePoint, ...] = ()
    loss_start: float | None = None
    readings: tuple[Reading, ...] = ()
    gave_up: bool = False

    @property
    def succeeded(self) -> bool:
        """True if the student was trained to the end and nothing is wrong with its losses."""
        return self.losses is not None and self.error is None

    @property
    def stopped(self) -> bool:
        """True if the training ended at a rung of its request; the last reading is that there."""
        return self.losses is None and self.error is None and bool(self.readings)


# What a backend tells the search while it works, in order, for every candidate it was given:
# started, then finished (trained, diverged or given up) or interrupted (its worker died and the
# candidate goes back into the queue).


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A worker began to train these candidates together."""

    candidate_ids: tuple[str, ...]
    worker: str


@dataclass(frozen=True, slots=True)
class AttemptInterrupted:
    """The worker of these candidates died; they will be tried again in a smaller group."""

    candidate_ids: tuple[str, ...]
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group is at ``step`` of ``total_steps``; sent a few times a second at most.

    Before its first step it may have to wait: ``waits`` then says for whom.
    """

    candidate_ids: tuple[str, ...]
    worker: str
    step: int
    total_steps: int
    waits: str = ""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """Nothing was heard of this group for a while; lets the search look whether it is wanted."""

    candidate_ids: tuple[str, ...]
    worker: str


@dataclass(frozen=True, slots=True)
class CandidateFinished:
    """A candidate is done, well or badly."""

    worker: str
    result: MiniKDResult


BackendEvent = (
    AttemptStarted | AttemptInterrupted | GroupProgress | StillWaiting | CandidateFinished
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A state that a strategy wants to see trained, and why."""

    index: int
    source: str
    predicted_reward: float | None = None


@dataclass(frozen=True, slots=True)
class NewCandidate:
    """A proposal with all that is known before training: size and latency."""

    proposal: Proposal
    architecture: Architecture
    latency_ms: float
    latency_ratio: float
    params_millions: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An architecture proposed in a search, with all that is known of it by now.

    One that failed has no reward; it has losses if it was trained to the end and has not learned.
    One that was stopped at a rung has neither losses nor a reward.

    Attributes:
        loss_start: the held-out relative loss before the first step.
        readings: of its losses at the rungs of its search, in the order of steps.
        num_steps: that its training made; None if it was not trained, or of before that was kept.
    """

    id: str
    search_id: str
    episode: int
    position: int
    index: int
    architecture: Architecture
    source: str
    predicted_reward: float | None
    status: CandidateStatus
    losses: Losses | None = None
    loss_start: float | None = None
    latency_ms: float | None = None
    latency_ratio: float | None = None
    params_millions: float | None = None
    reward: float | None = None
    reused: bool = False
    num_attempts: int = 0
    error: str | None = None
    note: str | None = None
    readings: tuple[Reading, ...] = ()
    num_steps: int | None = None


@dataclass(frozen=True, slots=True)
class ExploredState:
    """A state that a search has a reward for, with the figures of its first such candidate."""

    candidate_id: str
    index: int
    architecture: str
    source: str
    episode: int
    predicted_reward: float | None
    reward: float
    losses: Losses
    latency_ms: float
    latency_ratio: float
    params_millions: float
    loss_start: float | None = None


@dataclass(frozen=True, slots=True)
class StateCounts:
    """How many states of a search were explored, and how; see ``kdnas.search.summary``.

    ``steps_saved`` is the share of its trainings' steps that rungs have saved; None if they have
    stopped nobody.
    """

    explored: int
    trained: int
    reused: int
    failed: int
    attempts: int
    stopped: int = 0
    steps_saved: float | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One round of a search: N candidates, and what the controller knew and learned."""

    search_id: str
    number: int
    epsilon: float | None
    finished: bool
    global_best: int | None = None
    previous_best: int | None = None
    controller_loss: float | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A stored job of any kind. ``spec`` is the validated request as plain JSON."""

    id: str
    name: str
    status: SearchStatus
    spec: Mapping[str, Any]
    owner_kind: Literal["cli", "service"]
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SearchRecord(JobRecord):
    """A stored search without its episodes."""


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """What preparing a search finds out and its spec does not say.

    Attributes:
        teacher: the teacher's ``layers``, ``heads``, ``hidden``, ``intermediate``, ``activation``.
        embedding: what of a student's size comes from its family (``EmbeddingShape``).
        axes: of the space, with nothing left open.
        head_multiple: of which the width of a head must be a multiple.
        allowed: indices of the states within the limits; None means all.
        latency_profile: fingerprint of the profile of the latencies.
        family: of the students, for the latency table.
        teacher_fingerprint: names the teacher's configuration, weights and tokenizer.
        teacher_ms: the teacher's latency.
        warnings: sentences about the request that its user should know.
        starts: architecture → the loss before the first step, of states that sweeps had read when
            the search began; what they read later changes no proposal.
    """

    teacher: Mapping[str, Any]
    embedding: Mapping[str, Any]
    axes: Mapping[str, Any]
    head_multiple: int
    allowed: list[int] | None
    latency_profile: str
    family: str
    teacher_fingerprint: str
    teacher_ms: float
    warnings: list[str] = field(default_factory=list)
    starts: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; ``SearchFacts(**…)`` takes it back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SweepFacts:
    """What preparing a sweep finds out and its spec does not say.

    Attributes:
        axes: of the space, with nothing left open.
        head_multiple: of which the width of a head must be a multiple.
        num_states: of the space.
        drawn: indices of the states that are read or trained, in the order of the draw.
        context: of the first seed's trainings (:class:`MiniKDContext`).
        latency_profile: fingerprint of the profile of the latencies.
        family: of the students, for the latency table.
        teacher_fingerprint: names the teacher's configuration, weights and tokenizer.
        teacher_ms: the teacher's latency.
        embedding: what of a student's size comes from its family (``EmbeddingShape``).
        warnings: sentences about the request that its user should know.
        try_again: whether what has failed is to be forgotten when it goes on.
    """

    axes: Mapping[str, Any]
    head_multiple: int
    num_states: int
    drawn: list[int]
    context: Mapping[str, Any]
    latency_profile: str
    family: str
    teacher_fingerprint: str
    teacher_ms: float
    embedding: Mapping[str, Any]
    warnings: list[str] = field(default_factory=list)
    try_again: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; ``SweepFacts(**…)`` takes it back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SweptState:
    """What a state of a sweep came to under one seed; ``error`` says why it came to nothing."""

    index: int
    architecture: Architecture
    seed: int
    readings: tuple[Reading, ...]
    error: str | None
    train_seconds: float


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """The conditions under which a latency was measured; equal profiles share a table.

    Attributes:
        device: hardware name, such as ``cpu:AMD EPYC`` or ``cuda:NVIDIA H200``.
        runtime: ``pytorch-eager``.
        threads: intra-op threads (0 on a GPU).
        dtype: ``float32`` or ``bfloat16``.
        length: tokens in the one sequence of the batch.
        node: host that measured, for the record; not part of the fingerprint.
    """

    device: str
    runtime: str
    threads: int
    dtype: str
    length: int
    node: str = ""

    @property
    def fingerprint(self) -> str:
        """Key of the profile's table; the host's name does not count."""
        return fingerprint(
            [self.device, self.runtime, self.threads, self.dtype, self.length],
        )


@dataclass(frozen=True, slots=True)
class LatencyEntry:
    """Milliseconds of one architecture under a profile.

    Attributes:
        architecture: the student.
        latency_ms: time of a single inference, batch 1.
        spread_ms: half the distance between the quartiles of the repeats, 0 where modelled.
        measured: True if the whole student was timed, False if it comes from the block model.
    """

    architecture: Architecture
    latency_ms: float
    spread_ms: float
    measured: bool


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Latencies of a family of students under one profile, and the teacher's in the same run.

    ``family`` names what beside the architecture shapes a student's time (model type, positions);
    ``quality`` holds the figures of the check against whole students
    (``median_error``, ``p90_error``, ``spearman``, ``num_checked``).
    """

    profile: LatencyProfile
    family: str
    teacher_fingerprint: str
    teacher_ms: float
    entries: Mapping[str, LatencyEntry]
    quality: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def ms(self, architecture: Architecture) -> float:
        """Milliseconds of an architecture; KeyError names one that the table lacks."""
        return self.entries[str(architecture)].latency_ms

    def ratio(self, architecture: Architecture) -> float:
        """Latency as a share of the teacher's."""
        return self.ms(architecture) / self.teacher_ms


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What preparing distillations for a task has found out and their spec does not say.

    Attributes:
        task: name of the task, as papers write it.
        kind: ``classification`` or ``regression``.
        metric: key of the score that counts.
        labels: class names in the order of the outputs; empty for a regression.
        examples: part → its number of examples: ``train`` (to learn from), ``held-out`` (to choose
            by), and what is reported.
        chosen_on: what the examples to choose by are, in words; earlier versions did not say.
        data: fingerprint of the data.
        teacher: ``ref``, ``fingerprint``, ``layers``, ``hidden``, ``parameters``, whether it was
            ``tuned`` for this task here, its scores ``held_out`` and ``main``, and ``metrics`` by
            evaluation set.
        layers: scores of the pseudo-classifiers of the teacher, from the first layer on: ``layer``,
            ``held_out``, ``main``.
        student: ``name``, ``kind`` (``transformer``, ``bilstm`` or ``gated-cnn``), ``start`` in
            words, ``fingerprint`` of the model that it begins with, ``layers``, ``hidden``,
            ``parameters``, ``trainable``, and ``assistant``: None, or ``name`` and ``fingerprint``.
        settings: hyper-parameters with nothing left open, but for what a grid is to choose.
        warnings: sentences about the request that its user should know.
        grids: of each method that a grid chooses for, its ``key`` in the database and how many
            ``points`` it has.
    """

    task: str
    kind: str
    metric: str
    labels: tuple[str, ...]
    examples: Mapping[str, int]
    data: str
    teacher: Mapping[str, Any]
    layers: tuple[Mapping[str, Any], ...]
    student: Mapping[str, Any]
    settings: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    grids: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chosen_on: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; :meth:`from_json` takes it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskFacts:
        """Read back what :meth:`to_json` gave."""
        lists = {key: tuple(values[key]) for key in ("labels", "layers", "warnings")}
        return cls(**{**values, **lists})


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What a student has learned by one method with one seed.

    Attributes:
        method: name of the method.
        seed: of the run.
        main: the task's score on what is reported.
        metrics: evaluation set → metric → value.
        held_out: score on the examples to choose by, of the epoch that was chosen by it.
        chosen: ``stage`` and ``epoch`` whose weights were taken, and ``batch_size``,
            ``learning_rate`` and ``beta`` that were trained with; ``beta`` is None where it counts
            for nothing.
        curve: ``stage``, ``epoch``, ``step``, mean training ``loss`` and ``held_out`` score of each
            epoch, in order.
        attention: of each epoch of the first stage, ``epoch``, the student ``layers`` that attend,
            and ``weights``: for each of them the mean weight of each teacher layer over the
            held-out examples.
            Empty where the method has no attention.
        samples: of some held-out examples, ``id``, ``distances`` (from the label to what each
            teacher layer says) and ``weights`` (of the last attending student layer) at the end of
            the first stage; empty where there is no attention.
        steps: optimiser steps made.
        seconds: of training, over all interruptions; of runs beside each other an equal share.
        error: why it came to nothing; all scores are then empty.
    """

    method: str
    seed: int
    main: float | None = None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    held_out: float | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    curve: tuple[Mapping[str, Any], ...] = ()
    attention: tuple[Mapping[str, Any], ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    steps: int = 0
    seconds: float = 0.0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; :meth:`from_json` takes it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskRun:
        """Read back what :meth:`to_json` gave."""
        lists = {key: tuple(values[key]) for key in ("curve", "attention", "samples")}
        return cls(**{**values, **lists})

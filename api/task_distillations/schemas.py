"""Shapes of distillations for one task."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from kdnas.db.lists.job_pages import SORTS
from kdnas.db.lists.task_distillation_pages import LISTING
from kdnas.specs.ranges import Seed
from kdnas.specs.task_distillation import MethodName


class TaskDistillationQuery(KindQuery):
    """Which distillations for a task are wanted, and how they are sorted."""

    task: Text | None = Field(None, description="Exactly this one, as rows name it.")
    student: Text | None = Field(None, description="Exactly this one, as it was asked for.")
    sort: str = Field("-created_at", pattern=sort_pattern((*SORTS, *LISTING.sorts)))


class TaskDistillationShape(JobShape):
    """Distillations for a task, as lists have them; `done` of them are runs."""

    task: str
    student: str
    teacher: str | None = Field(description="As it was asked for.")
    methods: list[str]
    seeds: list[int]
    output: str | None = Field(description="Folder for the best students, if one was named.")


class LayerShape(Shape):
    """What a pseudo-classifier on a layer of the teacher scores."""

    layer: int
    held_out: float | None
    main: float | None


class TaskFactsShape(Shape):
    """What preparing has found out."""

    task: str
    kind: str = Field(description="`classification` or `regression`.")
    metric: str = Field(description="Key of the score that counts.")
    labels: list[str]
    examples: dict[str, int] = Field(description="Part → number of examples.")
    data: str = Field(description="Fingerprint of the data.")
    teacher: dict[str, Any] = Field(
        description="`ref fingerprint layers hidden parameters tuned held_out main metrics`."
    )
    layers: list[LayerShape] = Field(description="Of the teacher, from the first on.")
    student: dict[str, Any] = Field(
        description="`name kind start fingerprint layers hidden parameters trainable`, and "
        "`assistant`: null, or `name fingerprint`."
    )
    settings: dict[str, Any] = Field(
        description="Hyper-parameters with nothing left open, but for what a grid is to choose."
    )
    chosen_on: str | None = Field(
        description="What epochs are chosen by, in words; null if that was not noted."
    )
    warnings: list[str]


class GridTrialShape(Shape):
    """A batch size, a learning rate and a β that were tried."""

    batch_size: int
    learning_rate: float
    beta: float | None = Field(description="Null where it counts for nothing.")
    held_out: float | None = Field(
        description="Score on the held-out examples, of the best epoch; null if it diverged."
    )
    ending: str = Field(description="`finished` or `diverged`.")


class MethodGridShape(Shape):
    """The trials by which batch size, learning rate and β of a method are chosen."""

    method: str
    points: int = Field(description="That are to be tried.")
    trials: list[GridTrialShape] = Field(description="That have ended, in that order.")
    chosen: GridTrialShape | None = Field(description="Null until all have ended.")


class TaskDistillationDetail(TaskDistillationShape, JobDetail):
    """Distillations for a task with all that is known of the job."""

    facts: TaskFactsShape | None = Field(description="Null until it was prepared.")
    grids: list[MethodGridShape] = Field(
        description="Of each method, if a grid was asked for; empty until it was prepared."
    )
    warnings: list[str]


class RunsQuery(ListQuery):
    """Which runs are wanted."""

    method: list[MethodName] = Field([], max_length=20)
    seed: list[Seed] = Field([], max_length=1000)


class EpochShape(Shape):
    """An epoch of a stage: the mean loss, and the score on the held-out examples after it."""

    stage: int
    epoch: int
    step: int
    loss: float | None
    held_out: float | None


class AttentionShape(Shape):
    """Mean weights of the teacher's layers over the held-out examples after an epoch."""

    epoch: int
    layers: list[int] = Field(description="Student layers that attend, counted from 1.")
    weights: list[list[float]] = Field(description="These layers × teacher layers.")


class SampleShape(Shape):
    """A held-out example at the end of the first stage."""

    id: str
    distances: list[float] = Field(description="From the label to what each teacher layer says.")
    weights: list[float] = Field(description="Of the last student layer that attends.")


class TaskRunShape(Shape):
    """What a student came to by one method with one seed; scores are fractions."""

    method: str
    seed: int
    main: float | None
    metrics: dict[str, dict[str, float]] = Field(description="Evaluation set → metric → value.")
    held_out: float | None
    chosen: dict[str, Any] = Field(
        description="`stage epoch batch_size learning_rate beta`; `beta` is null where it counts "
        "for nothing."
    )
    curve: list[EpochShape]
    attention: list[AttentionShape]
    samples: list[SampleShape]
    steps: int
    seconds: float
    error: str | None
    finished_at: datetime


class SeedShape(Shape):
    """A run as the report has it."""

    seed: int
    main: float | None
    held_out: float | None
    chosen: dict[str, Any]
    steps: int
    seconds: float
    error: str | None


class ComparisonShape(Shape):
    """How much better a method is than another: a paired bootstrap over the examples."""

    difference: float
    low: float
    high: float
    p_value: float
    examples: int
    metric: str | None = Field(
        description="What is compared; null where that is the mean of what each example scored."
    )


class MethodRow(Shape):
    """A method over its seeds; scores are fractions."""

    method: str
    planned: int = Field(description="Seeds that were asked for.")
    num_succeeded: int
    num_failed: int
    mean: float | None
    deviation: float | None = Field(description="Of the sample; null of a single seed.")
    low: float | None = Field(description="Lower end of the mean's 95 % interval.")
    high: float | None
    over: str | None = Field(
        description="`seeds`, or, of a single seed, `examples`: what that interval is drawn over."
    )
    held_out: float | None = Field(description="Mean over the seeds.")
    retained: float | None = Field(description="The mean's share of the teacher's score.")
    best_seed: int | None = Field(description="By the held-out score.")
    student: str | None = Field(description="Folder of its student, where it lies on the server.")
    against: ComparisonShape | None = Field(description="Beside the report's `against`.")
    seeds: list[SeedShape]


class PublishedRow(Shape):
    """A row of a published table that has a score on the task."""

    table: str
    about: str
    split: str | None
    model: str
    teacher: str | None
    method: str
    ours: str | None = Field(description="Our name of the method; null of a teacher.")
    metric: str | None
    score: float


class TaskReport(Shape):
    """What came of distillations for a task, a row a method, with published rows beside."""

    id: str
    name: str
    status: str
    task: str
    metric: str | None = Field(description="Null until it was prepared.")
    student: str
    teacher: str | None
    teacher_score: float | None
    teacher_held_out: float | None
    rows: list[MethodRow]
    against: str | None = Field(description="The method that others are compared with.")
    published: list[PublishedRow]
    notes: list[str]

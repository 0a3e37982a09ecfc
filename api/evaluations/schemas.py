"""Shapes of evaluations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.http.schemas import TEXT, Shape, Text, sort_pattern
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from kdnas.db.lists.evaluation_pages import LISTING
from kdnas.db.lists.job_pages import SORTS
from kdnas.specs.ranges import Seed

MOST_COMPARED = 10

ModelName = Annotated[str, Field(max_length=4096, pattern=TEXT)]
ReportFormat = Literal["json", "md", "csv", "tex"]


class EvaluationQuery(KindQuery):
    """Which evaluations are wanted, and how they are sorted."""

    model: ModelName | None = Field(None, description="As rows name it.")
    suite: Text | None = None
    task: Text | None = None
    distillation: Text | None = Field(
        None, description="Id or name of the distillation that made the model."
    )
    sort: str = Field("-created_at", pattern=sort_pattern((*SORTS, *LISTING.sorts)))


class ReportQuery(BaseModel):
    """Whose scores are wanted, over which suite."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelName = Field(
        min_length=1, description="As rows name it, or `distillation:` and an id or a name."
    )
    suite: Text = Field(min_length=1)
    against: list[ModelName] = Field(
        [],
        max_length=MOST_COMPARED,
        description="Models beside it, with what share of their scores it retains.",
    )
    format: ReportFormat = "json"


class ClassesQuery(BaseModel):
    """Whose classes are wanted, over which suite."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelName = Field(
        min_length=1, description="As rows name it, or `distillation:` and an id or a name."
    )
    suite: Text = Field(min_length=1)


class PredictionsQuery(ClassesQuery):
    """Which predictions are wanted."""

    task: Text = Field(min_length=1)
    seed: Seed = 0


class EvaluationShape(JobShape):
    """A model on a task with a seed; what its result says is null before there is one."""

    model: str
    distillation_id: str | None
    distillation_name: str | None
    suite: str
    task: str
    seed: int
    score: float | None = Field(description="The task's main metric, a fraction.")
    metrics: dict[str, dict[str, float]] | None = Field(
        description="Evaluation set → metric → value."
    )
    official_split: bool | None
    notes: list[str] | None
    seconds: float | None
    steps: int | None


class EvaluationDetail(EvaluationShape, JobDetail):
    """An evaluation; `spec` has what it came to be, and under `request` what was asked for."""


class EvaluationsMade(Shape):
    """The evaluations that a request has made, one for each task and seed."""

    items: list[EvaluationDetail]


class EvaluatedModel(Shape):
    """A model and a suite, with how many evaluations there are."""

    model: str
    suite: str
    distillation_id: str | None
    distillation_name: str | None
    num_evaluations: int
    num_succeeded: int
    num_unfinished: int


class EvaluatedModels(Shape):
    """All models that were evaluated, the newest first."""

    items: list[EvaluatedModel]


class SuiteShape(Shape):
    """A suite and its tasks, in their order."""

    suite: str
    tasks: list[str]


class Suites(Shape):
    """All suites."""

    items: list[SuiteShape]


class CellShape(Shape):
    """A score, a fraction; `deviation` is that over seeds."""

    mean: float
    deviation: float | None
    seeds: int | None


class FiguresShape(Shape):
    """Size and speed of a model; latency is null where it was not measured."""

    parameters: int
    disk_bytes: int | None
    runtime: Literal["pytorch", "onnx-int8"]
    latency_ms: float | None
    device: str | None
    length: int | None
    threads: int | None


class ReportRow(Shape):
    """A model's scores by column; `method` and `about` are of published ones."""

    model: str
    origin: Literal["measured", "published"]
    method: str
    about: str
    scores: dict[str, CellShape]
    figures: FiguresShape | None


class ReportDetail(CellShape):
    """One metric of a model on an evaluation set of a task."""

    model: str
    task: str
    set: str
    metric: str
    values: list[float]


class BootstrapShape(Shape):
    """How sure the difference of two models is: a paired bootstrap over the examples."""

    difference: float
    low: float
    high: float
    p_value: float
    examples: int
    metric: str | None = Field(
        description="What is compared; null where that is the mean of what each example scored."
    )


class AgainstShape(Shape):
    """What share of another model's scores the first one retains, by column."""

    model: str
    other: str
    retained: dict[str, float]
    speed_up: float | None = Field(description="How many times sooner the first one answers.")
    bootstrap: dict[str, BootstrapShape]


class ReportShape(Shape):
    """Scores over a suite: measured models, then published ones."""

    suite: str
    columns: list[str]
    rows: list[ReportRow]
    details: list[ReportDetail]
    against: list[AgainstShape]
    notes: list[str]


class ClassShape(Shape):
    """How well one class, or spans of one type, are found; fractions."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int = Field(description="Examples, or spans, that are of it, over all seeds.")


class ConfusionShape(Shape):
    """How often each class, a row, was taken for each, a column."""

    labels: list[str]
    counts: list[list[int]]


class ClassTableShape(Shape):
    """What a model made of the classes of a task's evaluation set, all seeds together."""

    task: str
    set: str
    seeds: list[int]
    classes: list[ClassShape]
    confusion: ConfusionShape | None = Field(
        description="Null where a text has several classes, and of spans and tags."
    )


class ClassTables(Shape):
    """Tasks with classes of which predictions lie on the machine of the service."""

    items: list[ClassTableShape]

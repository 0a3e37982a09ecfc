"""Shapes of pipelines."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.distillations.schemas import DistillationShape
from api.http.schemas import Shape, Text, sort_pattern
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from kdnas.db.lists.job_pages import SORTS
from kdnas.db.lists.pipeline_pages import LISTING
from kdnas.records import MemberRole, PipelineStage, SearchStatus


class PipelineQuery(KindQuery):
    """Which pipelines are wanted, and how they are sorted."""

    q: Text | None = Field(None, description="A part of the name.")
    sort: str = Field("-created_at", pattern=sort_pattern((*SORTS, *LISTING.sorts)))


class PipelineReportQuery(BaseModel):
    """How the report is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["json", "md", "csv", "tex"] = "json"


class PipelineShape(JobShape):
    """A pipeline, and how much of it is done; students are chosen when its search has ended."""

    stage: PipelineStage
    search_id: str | None = Field(description="Null if the search was deleted.")
    search_name: str | None
    search_status: SearchStatus | None
    num_students: int
    num_distilled: int
    num_evaluations: int
    num_evaluated: int
    num_task_distillations: int = Field(description="What was chosen, for a task each.")
    num_task_distilled: int
    notes: list[str]


class ReasonShape(Shape):
    """Why a model is in the pipeline."""

    role: MemberRole
    about: str


class MemberFiguresShape(Shape):
    """What the search knows of a student; null where it was not explored or measured."""

    reward: float | None
    loss_relative: float | None
    loss_output: float | None
    latency_ms: float | None
    latency_ratio: float | None
    params_millions: float | None


class ScoreShape(Shape):
    """One evaluation of a member, short."""

    id: str
    suite: str
    task: str
    seed: int
    status: SearchStatus
    done: int | None
    total: int | None
    score: float | None = Field(description="The task's main metric, a fraction.")
    error: str | None


class SecondStepShape(Shape):
    """The distillation of a member's student for one task, short."""

    id: str
    name: str
    task: str
    method: str
    status: SearchStatus
    done: int | None
    total: int | None
    score: float | None = Field(description="Mean of the runs that are done, a fraction.")
    metric: str | None = Field(
        description="Of the score: the one that distillations for a task go by. Evaluations, and "
        "the report of the pipeline, may go by another: of MRPC and QQP by F1."
    )
    error: str | None


class MemberShape(Shape):
    """A model of a pipeline; forms of the teacher have neither architecture nor distillation."""

    id: str
    position: int
    role: MemberRole
    reasons: list[ReasonShape]
    architecture: str | None
    figures: MemberFiguresShape
    distillation: DistillationShape | None
    evaluations: list[ScoreShape] = Field(description="None until its model is there.")
    task_distillations: list[SecondStepShape] = Field(
        description="Of what the search chose, if it was asked for: none until its model is there."
    )


class PipelineDetail(PipelineShape, JobDetail):
    """A pipeline with its request and its members."""

    members: list[MemberShape]

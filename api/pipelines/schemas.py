"""Shapes of pipelines."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.distillations.schemas import DistillationShape
from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from kdnas.db.lists.pipeline_pages import SORTS, PipelineFilter
from kdnas.db.records import OwnerKind
from kdnas.records import MemberRole, PipelineStage, SearchStatus


class PipelineQuery(ListQuery):
    """Which pipelines are wanted, and how they are sorted."""

    status: list[SearchStatus] = Field([], max_length=20)
    owner_kind: OwnerKind | None = None
    q: Text | None = Field(None, description="A part of the name.")
    sort: str = Field("-created_at", pattern=sort_pattern(SORTS))

    def filter(self) -> PipelineFilter:
        """As the repository takes it."""
        return PipelineFilter(tuple(self.status), self.owner_kind, self.q)


class PipelineReportQuery(BaseModel):
    """How the report is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["json", "md", "csv", "tex"] = "json"


class PipelineShape(Shape):
    """A pipeline, and how much of it is done; students are chosen when its search has ended."""

    id: str
    name: str
    status: SearchStatus
    owner_kind: OwnerKind
    stage: PipelineStage
    search_id: str | None = Field(description="Null if the search was deleted.")
    search_name: str | None
    search_status: SearchStatus | None
    num_students: int
    num_distilled: int
    num_evaluations: int
    num_evaluated: int
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


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
    share: float
    score: float | None = Field(description="The task's main metric, a fraction.")
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


class PipelineDetail(PipelineShape):
    """A pipeline with its request and its members."""

    notes: list[str]
    spec: dict[str, Any] = Field(description="See `GET /api/v1/schemas/pipeline`.")
    members: list[MemberShape]

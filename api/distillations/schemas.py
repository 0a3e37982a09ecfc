"""Shapes of full distillations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from api.searches.schemas import CurvePointShape
from kdnas.db.lists.distillation_pages import SORTS
from kdnas.db.records import OwnerKind
from kdnas.records import SearchStatus
from kdnas.specs.distillation import DistillationSpec


class DistillationRequest(DistillationSpec):
    """A full distillation; with `search`, what is not given is taken from that search."""

    search: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Id or name of a search whose teacher, corpus, objective and student start "
        "are taken where the request gives none.",
    )


class DistillationQuery(ListQuery):
    """Which distillations are wanted, and how they are sorted."""

    status: list[SearchStatus] = Field([], max_length=20)
    owner_kind: OwnerKind | None = None
    architecture: Text | None = Field(None, description="Exactly this one.")
    objective: Text | None = Field(None, description="Of this objective, by its name.")
    search: Text | None = Field(None, description="Id or name of the search they came from.")
    sort: str = Field("-created_at", pattern=sort_pattern(SORTS))


class HeldOutShape(Shape):
    """Held-out losses at a step."""

    step: int
    training: float
    mean: float
    relative: float
    output: float


class DistillationShape(Shape):
    """A full distillation; `losses` are those of its result, or the newest reading."""

    id: str
    name: str
    status: SearchStatus
    owner_kind: OwnerKind
    architecture: str
    search_id: str | None
    step: int
    total_steps: int | None
    losses: dict[str, float] | None = Field(
        description="`step`, `training`, `mean`, `relative`, `output`."
    )
    output: str | None = Field(description="Folder of the student on the server.")
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class DistillationDetail(DistillationShape):
    """A full distillation with what was asked for."""

    spec: dict[str, Any] = Field(description="See `GET /api/v1/schemas/distillation`.")


class DistillationCurve(Shape):
    """How the losses of a distillation went."""

    points: list[CurvePointShape]
    held_out: list[HeldOutShape]

"""Shapes of full distillations."""

from __future__ import annotations

from pydantic import Field

from api.http.schemas import Shape, Text, sort_pattern
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from api.searches.schemas import CurvePointShape
from kdnas.db.lists.distillation_pages import LISTING
from kdnas.db.lists.job_pages import SORTS
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


class DistillationQuery(KindQuery):
    """Which distillations are wanted, and how they are sorted."""

    architecture: Text | None = Field(None, description="Exactly this one.")
    objective: Text | None = Field(None, description="Of this objective, by its name.")
    search: Text | None = Field(None, description="Id or name of the search they came from.")
    sort: str = Field("-created_at", pattern=sort_pattern((*SORTS, *LISTING.sorts)))


class HeldOutShape(Shape):
    """Held-out losses at a step."""

    step: int
    training: float
    mean: float
    relative: float
    output: float


class DistillationShape(JobShape):
    """A full distillation, `done` of `total` steps; `losses` are of its result or last reading."""

    architecture: str
    objective: str | None = Field(description="Its name.")
    teacher: str | None = Field(description="As it was asked for.")
    search_id: str | None
    losses: dict[str, float] | None = Field(
        description="`step`, `training`, `mean`, `relative`, `output`."
    )
    output: str | None = Field(description="Folder of the student on the server.")


class DistillationDetail(DistillationShape, JobDetail):
    """A full distillation with what was asked for."""


class DistillationCurve(Shape):
    """How the losses of a distillation went."""

    points: list[CurvePointShape]
    held_out: list[HeldOutShape]

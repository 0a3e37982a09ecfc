"""Shapes of latency tables, architectures and search spaces."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from api.http.schemas import ListQuery, Page, Shape, sort_pattern
from api.jobs.schemas import JobDetail, JobShape
from kdnas.db.lists.latency_pages import SORTS
from kdnas.specs.base import Spec
from kdnas.specs.parts import TeacherSpec
from kdnas.specs.search import LatencySpec, SpaceSpec


class LatencyTableRequest(Spec):
    """A latency table that is wanted: whose students, under which profile, of which space."""

    teacher: TeacherSpec = TeacherSpec()
    latency: LatencySpec = LatencySpec()
    space: SpaceSpec = SpaceSpec()


class EntryQuery(ListQuery):
    """How the entries of a table are sorted."""

    sort: str = Field("latency_ms", pattern=sort_pattern(SORTS))


class ProfileShape(Shape):
    """Under which conditions latencies were measured."""

    device: str
    runtime: str
    threads: int
    dtype: str
    length: int
    family: str
    teacher_ms: float | None


class LatencyTableShape(ProfileShape):
    """Where and how latencies were measured; `complete` once the teacher's is known."""

    id: str
    node: str
    teacher_fingerprint: str
    quality: dict[str, Any] = Field(description="How well the model of blocks fits whole students.")
    complete: bool
    num_entries: int
    build_seconds: float | None
    created_at: datetime
    completed_at: datetime | None


class MeasuredShape(Shape):
    """Milliseconds of an architecture; `measured` as a whole, else from its blocks."""

    latency_ms: float
    spread_ms: float
    measured: bool
    latency_ratio: float | None


class LatencyEntryShape(MeasuredShape):
    """What a table says of one architecture."""

    architecture: str


class LatencyTableDetail(LatencyTableShape):
    """A latency table with a page of its entries."""

    entries: Page[LatencyEntryShape]


class LatencyBuildShape(JobShape):
    """A latency table that was asked for; `done` of it are per cent."""

    latency_table_id: str | None
    spec: dict[str, Any]


class LatencyBuildDetail(LatencyBuildShape, JobDetail):
    """A latency table that was asked for, with all that is known of the job."""


class KnownLatency(ProfileShape, MeasuredShape):
    """What one table says of an architecture."""

    latency_table_id: str


class ArchitectureFacts(Shape):
    """What an architecture is, costs and learns."""

    architecture: str
    layers: int
    heads: int
    head_size: int
    hidden: int
    intermediate: int
    activation: str
    vocab_size: int
    params_millions: float
    embedding_params_millions: float
    mflops_per_token: float
    length: int
    teacher_layers: int
    layer_mapping: dict[str, list[int]] | None = Field(
        description="Student layer → teacher layers; null for a student deeper than its teacher."
    )
    latencies: list[KnownLatency]


class SpaceShape(Shape):
    """A search space; `counts` says how many states have each value of an axis."""

    kind: Literal["paper", "scaled"]
    num_states: int
    axes: dict[str, list[int | str]]
    counts: dict[str, dict[str, int]]

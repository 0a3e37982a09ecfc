"""Latency builds as a kind of job."""

from __future__ import annotations

from api.jobs.context import JobContext
from api.jobs.kind import JobKind
from api.latency_tables.schemas import LatencyBuildDetail, LatencyBuildShape
from kdnas.db.lists.latency_pages import BUILDS
from kdnas.db.models import LatencyBuild


def _run(context: JobContext) -> None:
    from api.latency_tables.run import run_in  # loads torch

    run_in(context)


KIND = JobKind(
    table=LatencyBuild,
    plural="latency_builds",
    run=_run,
    listing=BUILDS,
    shape=LatencyBuildShape,
    detail=LatencyBuildDetail,
    routers=("api.latency_tables.routes", "api.latency_tables.architecture_routes"),
)

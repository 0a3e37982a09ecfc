"""Latency builds as a kind of job."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter

from api.jobs.context import JobContext
from api.jobs.kind import JobKind
from kdnas.db.models import LatencyBuild


def _run(context: JobContext) -> None:
    from api.latency_tables.run import run_in  # loads torch

    run_in(context)


def _routes() -> Iterable[APIRouter]:
    from api.latency_tables import architecture_routes, routes

    return (routes.router, architecture_routes.router)


KIND = JobKind(table=LatencyBuild, plural="latency_builds", run=_run, routes=_routes)

"""Evaluations as a kind of job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from fastapi import APIRouter

from api.jobs.context import JobContext
from api.jobs.files import remove_abandoned_files, remove_evaluation_checkpoints
from api.jobs.kind import JobKind
from kdnas.db.engine import Database
from kdnas.db.models import Evaluation
from kdnas.settings import Settings

log = structlog.get_logger("kdnas.jobs")


def _run(context: JobContext) -> None:
    from api.evaluations.run import run_in  # loads torch

    run_in(context)


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("grid"))


def _clean_up(job_id: str, database: Database, settings: Settings) -> None:
    remove_evaluation_checkpoints(settings, job_id)


def _tidy(database: Database, settings: Settings) -> None:
    for folder in remove_abandoned_files(settings):
        log.info("abandoned files removed", folder=str(folder))


def _routes() -> Iterable[APIRouter]:
    from api.evaluations import routes

    return (routes.router,)


KIND = JobKind(
    table=Evaluation,
    plural="evaluations",
    run=_run,
    clean_up=_clean_up,
    tidy=_tidy,
    needs_cluster=_needs_cluster,
    shares_cores=True,
    routes=_routes,
)

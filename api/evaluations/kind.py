"""Evaluations as a kind of job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from api.evaluations.schemas import EvaluationDetail, EvaluationQuery, EvaluationShape
from api.jobs.context import JobContext
from api.jobs.files import remove_abandoned_files, remove_evaluation_checkpoints
from api.jobs.kind import JobKind
from kdnas.db.engine import Database
from kdnas.db.lists.evaluation_pages import LISTING
from kdnas.db.models import Evaluation, Job
from kdnas.settings import Settings

log = structlog.get_logger("kdnas.jobs")


def _run(context: JobContext) -> None:
    from api.evaluations.run import run_in  # loads torch

    run_in(context)


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("grid"))


def _leftovers(job: Job, settings: Settings) -> Callable[[], None]:
    return partial(remove_evaluation_checkpoints, settings, job.id)


def _tidy(database: Database, settings: Settings) -> None:
    for folder in remove_abandoned_files(settings):
        log.info("abandoned files removed", folder=str(folder))


KIND = JobKind(
    table=Evaluation,
    plural="evaluations",
    run=_run,
    leftovers=_leftovers,
    tidy=_tidy,
    needs_cluster=_needs_cluster,
    shares_cores=True,
    listing=LISTING,
    shape=EvaluationShape,
    detail=EvaluationDetail,
    query=EvaluationQuery,
    routers=("api.evaluations.routes",),
)

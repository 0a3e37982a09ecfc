"""Full distillations as a kind of job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from fastapi import APIRouter

from api.jobs.context import JobContext
from api.jobs.files import remove_run_files
from api.jobs.kind import JobKind
from kdnas.db.engine import Database
from kdnas.db.models import Distillation
from kdnas.db.repository import distillations
from kdnas.errors import RequestError, StoreError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec

log = structlog.get_logger("kdnas.jobs")


def _run(context: JobContext) -> None:
    from api.distillations.run import run_in  # loads torch

    run_in(context)


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    training = spec.get("training") or {}
    return training.get("num_workers", 1) > 1 and not training.get("address")


def _clean_up(job_id: str, database: Database, settings: Settings) -> None:
    """Remove checkpoints and events of a run that is over."""
    with database.read() as session:
        record = distillations.get_distillation(session, job_id)
    try:
        spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
        own = record.owner_kind == "service"
        remove_run_files(spec, settings.for_service() if own else settings, job_id)
    except (RequestError, StoreError) as error:  # such as of an objective since uninstalled
        log.error("checkpoints left", distillation=job_id, reason=str(error))


def _routes() -> Iterable[APIRouter]:
    from api.distillations import routes

    return (routes.router,)


KIND = JobKind(
    table=Distillation,
    plural="distillations",
    run=_run,
    clean_up=_clean_up,
    needs_cluster=_needs_cluster,
    has_page=True,
    routes=_routes,
)

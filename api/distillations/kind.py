"""Full distillations as a kind of job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from api.distillations.schemas import (
    DistillationDetail,
    DistillationQuery,
    DistillationRequest,
    DistillationShape,
)
from api.jobs.context import JobContext
from api.jobs.files import remove_run_files
from api.jobs.kind import Adding, JobKind
from kdnas.db.engine import Database, Session
from kdnas.db.lists.distillation_pages import LISTING
from kdnas.db.models import Distillation, Job
from kdnas.db.repository import distillations, searches
from kdnas.errors import RequestError, StoreError, told_at
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec

OF_THE_SEARCH = ("teacher", "corpus", "objective", "student")

log = structlog.get_logger("kdnas.jobs")


def _run(context: JobContext) -> None:
    from api.distillations.run import run_in  # loads torch

    run_in(context)


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    training = spec.get("training") or {}
    return training.get("num_workers", 1) > 1 and not training.get("address")


def _create(request: DistillationRequest, database: Database, settings: Settings) -> Adding:
    from api.inputs.data_roots import check_paths

    given = request.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    # What a search was allowed to read, its distillation is, too.
    check_paths(DistillationSpec.read(given, ""), settings)
    search_id = None
    if request.search is not None:
        with told_at("search"), database.read() as session:
            search = searches.get_search(session, request.search)
        search_id = search.id
        given = {key: search.spec[key] for key in OF_THE_SEARCH if key in search.spec} | given
    spec = DistillationSpec.read(given, "" if search_id is None else f"search {search.name!r}")

    def add(session: Session) -> str:
        return distillations.create_distillation(
            session,
            spec.to_json(),
            spec.arch,
            name=spec.name,
            owner_kind="service",
            search_id=search_id,
        ).id

    return add


def _leftovers(job: Job, settings: Settings) -> Callable[[], None]:
    """Say how to remove checkpoints and events of a run that is over."""
    own = settings.for_service() if job.owner_kind == "service" else settings
    return partial(_remove, job.id, job.spec, job.called, own)


def _remove(job_id: str, asked: Mapping[str, Any], called: str, settings: Settings) -> None:
    try:
        remove_run_files(DistillationSpec.read(dict(asked), called), settings, job_id)
    except (RequestError, StoreError) as error:  # such as of an objective since uninstalled
        log.error("checkpoints left", distillation=job_id, reason=str(error))


KIND = JobKind(
    table=Distillation,
    plural="distillations",
    run=_run,
    leftovers=_leftovers,
    needs_cluster=_needs_cluster,
    has_page=True,
    spec=DistillationRequest,
    create=_create,
    listing=LISTING,
    shape=DistillationShape,
    detail=DistillationDetail,
    query=DistillationQuery,
    routers=("api.distillations.routes",),
)

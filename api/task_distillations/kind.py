"""Distillations for one task as a kind of job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from api.jobs.context import JobContext
from api.jobs.files import remove_unfinished_runs
from api.jobs.kind import Adding, JobKind
from api.task_distillations.schemas import (
    TaskDistillationDetail,
    TaskDistillationQuery,
    TaskDistillationShape,
)
from kdnas.db.engine import Database, Session
from kdnas.db.lists.task_distillation_pages import LISTING
from kdnas.db.models import Job, TaskDistillation
from kdnas.db.repository import task_distillations
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec


def _run(context: JobContext) -> None:
    from api.task_distillations.run import run_in  # loads torch

    run_in(context)


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("grid"))


def _create(request: TaskDistillationSpec, database: Database, settings: Settings) -> Adding:
    from api.task_distillations.request import (
        check_methods,
        check_places,
        check_task,
        task_name,
        with_students,
        with_whole_paths,
    )

    check_places(request, settings)
    check_methods(request)
    with database.read() as session:
        spec = with_whole_paths(with_students(request, session))
    check_task(spec, settings.for_service().reach)

    def add(session: Session) -> str:
        asked = spec.to_json()
        return task_distillations.create_task_distillation(
            session, asked, task=task_name(spec), name=spec.name, owner_kind="service"
        ).id

    return add


def _leftovers(job: Job, settings: Settings) -> Callable[[], None]:
    return partial(remove_unfinished_runs, settings, job.id)


KIND = JobKind(
    table=TaskDistillation,
    plural="task_distillations",
    run=_run,
    leftovers=_leftovers,
    needs_cluster=_needs_cluster,
    shares_cores=True,
    has_page=True,
    spec=TaskDistillationSpec,
    create=_create,
    listing=LISTING,
    shape=TaskDistillationShape,
    detail=TaskDistillationDetail,
    query=TaskDistillationQuery,
    routers=("api.task_distillations.routes",),
)

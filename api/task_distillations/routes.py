"""What distillations for a task have come to: their runs, and all of them as a report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.rendering import rendered
from api.http.schemas import Page
from api.task_distillations.report import task_report
from api.task_distillations.schemas import RunsQuery, TaskReport, TaskRunShape
from kdnas.db.lists.task_distillation_pages import list_runs
from kdnas.db.repository import task_distillations

router = APIRouter(tags=["task-distillations"])

Reference = Annotated[
    str,
    Path(
        alias="task_distillation", description="Id or name of a task distillation.", max_length=200
    ),
]


@router.get("/task-distillations/{task_distillation}/runs", response_model=Page[TaskRunShape])
def list_task_runs(
    reference: Reference, query: Annotated[RunsQuery, Query()], database: DatabaseDep
) -> Response:
    """List the runs that are done, by method and seed, with curves and attention."""
    with database.read() as session:
        job_id = task_distillations.get_task_distillation(session, reference).id
        page = list_runs(session, job_id, query.given, limit=query.limit, cursor=query.cursor)
        return rendered(page)


@router.get("/task-distillations/{task_distillation}/report", response_model=TaskReport)
def read_task_report(
    reference: Reference, database: DatabaseDep, settings: SettingsDep
) -> Response:
    """Sum up the runs by method, each beside vanilla distillation, with published rows."""
    with database.read() as session:
        return rendered(task_report(session, settings, reference))

"""Pipelines: ask for one, follow it, pause, resume, cancel or delete it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page
from api.http.schemas import Page
from api.inputs.data_roots import check_pipeline
from api.jobs.routes import add_job_routes
from api.pipelines.advance import begin_pipeline
from api.pipelines.reading import read_page
from api.pipelines.report import build_pipeline_report, report_json
from api.pipelines.report_formats import as_csv, as_latex, as_markdown
from api.pipelines.request import checked_pipeline
from api.pipelines.results import PipelineReport
from api.pipelines.schemas import (
    PipelineDetail,
    PipelineQuery,
    PipelineReportQuery,
    PipelineShape,
)
from kdnas.db.engine import Database, Session
from kdnas.db.lists import pipeline_pages
from kdnas.db.models import Pipeline
from kdnas.db.repository import jobs
from kdnas.specs.pipeline import PipelineSpec

TEXTS: dict[str, tuple[str, Callable[[PipelineReport], str]]] = {
    "md": ("text/markdown", as_markdown),
    "csv": ("text/csv", as_csv),
    "tex": ("application/x-tex", as_latex),
}

Reference = Annotated[str, Path(description="Id or name of a pipeline.", max_length=200)]

router = APIRouter(tags=["pipelines"])


@router.post("/pipelines", status_code=202, response_model=PipelineDetail)
def create_pipeline(
    request: PipelineSpec, database: DatabaseDep, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for a search, full distillations of what it chooses, and their scores."""
    check_pipeline(request, settings)
    spec = checked_pipeline(request)

    def create(session: Session) -> Answer:
        record = begin_pipeline(session, spec, "service")
        row = pipeline_pages.read_pipeline(session, record.id)
        location = f"/api/v1/pipelines/{record.id}"
        return Answer(PipelineDetail.model_validate(row), location=location)

    return once.answer(202, create, jobs.require_job)


@router.get("/pipelines", response_model=Page[PipelineShape])
def list_pipelines(query: Annotated[PipelineQuery, Query()], database: DatabaseDep) -> Response:
    """List pipelines, the newest first unless asked otherwise."""
    with database.read() as session:
        return rendered_page(read_page(session, query))


@router.get(
    "/pipelines/{pipeline}/report",
    response_model=PipelineReport,
    responses={
        200: {
            "content": {media: {"schema": {"type": "string"}} for media, _ in TEXTS.values()},
        }
    },
)
def read_pipeline_report(
    pipeline: Reference,
    query: Annotated[PipelineReportQuery, Query()],
    database: DatabaseDep,
    settings: SettingsDep,
) -> Response:
    """Report which student to take and how sure that is, from what is there by now."""
    report = build_pipeline_report(database, settings, pipeline)
    if query.format == "json":
        return rendered(report_json(report))
    media_type, write = TEXTS[query.format]
    return Response(write(report), media_type=media_type)


def _read(database: Database, session: Session, job_id: str) -> pipeline_pages.Row:
    return pipeline_pages.read_pipeline(session, job_id)


add_job_routes(router, Pipeline, "pipelines", PipelineDetail, _read)

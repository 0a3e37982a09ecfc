"""The report of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.rendering import rendered
from api.pipelines.report import build_pipeline_report, report_json
from api.pipelines.report_formats import as_csv, as_latex, as_markdown
from api.pipelines.results import PipelineReport
from api.pipelines.schemas import PipelineReportQuery

TEXTS: dict[str, tuple[str, Callable[[PipelineReport], str]]] = {
    "md": ("text/markdown", as_markdown),
    "csv": ("text/csv", as_csv),
    "tex": ("application/x-tex", as_latex),
}

Reference = Annotated[str, Path(description="Id or name of a pipeline.", max_length=200)]

router = APIRouter(tags=["pipelines"])


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

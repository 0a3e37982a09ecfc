"""Pipelines as a kind of job: without a process of their own, they move on from part to part."""

from __future__ import annotations

from api.jobs.kind import Adding, JobKind
from api.pipelines.schemas import PipelineDetail, PipelineQuery, PipelineShape
from kdnas.db.engine import Database, Session
from kdnas.db.lists.pipeline_pages import LISTING
from kdnas.db.models import Pipeline
from kdnas.settings import Settings
from kdnas.specs.pipeline import PipelineSpec


def _move_on(database: Database) -> None:
    from api.pipelines.advance import advance_all

    advance_all(database)


def _create(request: PipelineSpec, database: Database, settings: Settings) -> Adding:
    from api.inputs.data_roots import check_pipeline
    from api.pipelines.advance import begin_pipeline
    from api.pipelines.request import checked_pipeline

    check_pipeline(request, settings)
    spec = checked_pipeline(request, settings.for_service().reach)

    def add(session: Session) -> str:
        return begin_pipeline(session, spec, "service").id

    return add


KIND = JobKind(
    table=Pipeline,
    plural="pipelines",
    run=None,
    move_on=_move_on,
    has_page=True,
    spec=PipelineSpec,
    create=_create,
    listing=LISTING,
    shape=PipelineShape,
    detail=PipelineDetail,
    query=PipelineQuery,
    routers=("api.pipelines.routes",),
)

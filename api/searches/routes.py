"""Searches: ask for one, follow it, pause, resume, cancel or delete it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response, StreamingResponse

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered_page
from api.http.schemas import Page
from api.inputs.data_roots import check_paths
from api.jobs.routes import add_job_routes
from api.searches.export import MEDIA_TYPES, ExportFormat, export_chunks
from api.searches.reading import read_page, read_search
from api.searches.schemas import (
    CandidateShape,
    SearchDetail,
    SearchQuery,
    SearchShape,
)
from controller.strategies import build_strategy
from kdnas.db.engine import Session
from kdnas.db.models import Search
from kdnas.db.repository import jobs, searches
from kdnas.search_space import SearchSpace
from kdnas.specs.search import SearchSpec

Reference = Annotated[str, Path(description="Id or name of a search.", max_length=200)]

router = APIRouter(tags=["searches"])


@router.post("/searches", status_code=202, response_model=SearchDetail)
def create_search(
    spec: SearchSpec, database: DatabaseDep, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for a search; a coordinator takes it up when it has room."""
    check_paths(spec, settings)
    build_strategy(spec.controller, SearchSpace.paper(), seed=0)  # an unknown name fails here
    if spec.space.kind == "custom":
        SearchSpace.from_axes(spec.space.axes)

    def create(session: Session) -> Answer:
        record = searches.create_search(
            session, spec.to_json(), name=spec.name, owner_kind="service"
        )
        body = SearchDetail.model_validate(read_search(database, session, record.id))
        return Answer(body, location=f"/api/v1/searches/{record.id}")

    return once.answer(202, create, jobs.require_job)


@router.get("/searches", response_model=Page[SearchShape])
def list_searches(query: Annotated[SearchQuery, Query()], database: DatabaseDep) -> Response:
    """List searches, the newest first unless asked otherwise."""
    with database.read() as session:
        return rendered_page(read_page(database, session, query))


@router.get(
    "/searches/{search}/export",
    response_class=Response,
    responses={
        200: {
            "description": "Every candidate by episode and position, as a file.",
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/json": {
                    "schema": {
                        "type": "array",
                        "items": {"$ref": f"#/components/schemas/{CandidateShape.__name__}"},
                    }
                },
                "application/vnd.apache.parquet": {"schema": {"type": "string"}},
            },
        }
    },
)
def export_search(
    search: Reference, database: DatabaseDep, format: ExportFormat = "csv"
) -> StreamingResponse:
    """Send all candidates of a search as a file."""
    with database.read() as session:
        search_id = searches.get_search(session, search).id
    return StreamingResponse(
        export_chunks(database, search_id, format),
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="kdnas-{search_id}.{format}"'},
    )


add_job_routes(router, Search, "searches", SearchDetail, read_search)

"""Latency tables: which there are, what is in them, and asking for another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page, sorting
from api.http.schemas import ListQuery, Page
from api.inputs.data_roots import check_model
from api.jobs.routes import add_job_routes
from api.latency_tables.schemas import (
    BuildQuery,
    EntryQuery,
    LatencyBuildShape,
    LatencyTableDetail,
    LatencyTableRequest,
    LatencyTableShape,
)
from kdnas.db.engine import Database, Session
from kdnas.db.lists import latency_pages
from kdnas.db.models import LatencyBuild
from kdnas.db.repository.jobs import add_job
from kdnas.search_space import SearchSpace

Build = Annotated[str, Path(description="Id of a latency build.", max_length=200)]

router = APIRouter(tags=["latency"])


@router.post("/latency-tables", status_code=202, response_model=LatencyBuildShape)
def build_latency_table(
    request: LatencyTableRequest, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for a latency table; what is answered is its build, which names the table at the end."""
    check_model(request.teacher, "teacher.ref", settings)
    if request.space.kind == "custom":
        SearchSpace.from_axes(request.space.axes)

    def create(session: Session) -> Answer:
        build = add_job(session, LatencyBuild, request.to_json(), stem="latency")
        body = LatencyBuildShape.model_validate(latency_pages.read_build(session, build.id))
        return Answer(body, location=f"/api/v1/latency-builds/{build.id}")

    return once.answer(202, create)


@router.get("/latency-tables", response_model=Page[LatencyTableShape])
def list_latency_tables(query: Annotated[ListQuery, Query()], database: DatabaseDep) -> Response:
    """List the latency tables without their entries, the newest first."""
    with database.read() as session:
        page = latency_pages.list_tables(session, limit=query.limit, cursor=query.cursor)
    return rendered_page(page)


@router.get("/latency-tables/{table}", response_model=LatencyTableDetail)
def read_latency_table(
    table: Annotated[str, Path(description="Id of a latency table.", max_length=200)],
    query: Annotated[EntryQuery, Query()],
    database: DatabaseDep,
) -> Response:
    """Read a latency table with a page of its entries, the fastest first unless asked otherwise."""
    sort, descending = sorting(query.sort)
    with database.read() as session:
        found = latency_pages.read_table(session, table)
        page = latency_pages.list_entries(
            session,
            found,
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )
    return rendered({**found, "entries": {"items": page.items, "next_cursor": page.next_cursor}})


@router.get("/latency-builds", response_model=Page[LatencyBuildShape])
def list_latency_builds(query: Annotated[BuildQuery, Query()], database: DatabaseDep) -> Response:
    """List the latency tables that were asked for, the newest first."""
    with database.read() as session:
        page = latency_pages.list_builds(
            session, query.status, limit=query.limit, cursor=query.cursor
        )
    return rendered_page(page)


def _read(database: Database, session: Session, job_id: str) -> latency_pages.Row:
    return latency_pages.read_build(session, job_id)


add_job_routes(router, LatencyBuild, "latency-builds", LatencyBuildShape, _read)

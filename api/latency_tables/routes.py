"""Latency tables: which there are, what is in them, and asking for another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import OnceDep
from api.http.rendering import rendered, sorting
from api.http.schemas import ListQuery, Page
from api.inputs.data_roots import check_model
from api.jobs.routes import answer_new
from api.latency_tables.kind import KIND
from api.latency_tables.schemas import (
    EntryQuery,
    LatencyBuildDetail,
    LatencyTableDetail,
    LatencyTableRequest,
    LatencyTableShape,
)
from kdnas.db.engine import Session
from kdnas.db.lists import latency_pages
from kdnas.db.models import LatencyBuild
from kdnas.db.repository import jobs
from kdnas.db.repository.jobs import add_job
from kdnas.errors import told_at
from kdnas.search_space import SearchSpace

router = APIRouter(tags=["latency"])


@router.post("/latency-tables", status_code=202, response_model=LatencyBuildDetail)
def build_latency_table(
    request: LatencyTableRequest, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for a latency table; what is answered is its build, which names the table at the end."""
    if (answer := once.earlier(jobs.require_job)) is not None:
        return answer
    check_model(request.teacher, "teacher.ref", settings)
    if request.space.kind == "custom":
        with told_at("space.axes"):
            SearchSpace.from_axes(request.space.axes)

    def add(session: Session) -> str:
        return add_job(session, LatencyBuild, request.to_json(), stem="latency").id

    return answer_new(KIND, once, add)


@router.get("/latency-tables", response_model=Page[LatencyTableShape])
def list_latency_tables(query: Annotated[ListQuery, Query()], database: DatabaseDep) -> Response:
    """List the latency tables without their entries, the newest first."""
    with database.read() as session:
        page = latency_pages.list_tables(session, limit=query.limit, cursor=query.cursor)
    return rendered(page)


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
            table,
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )
    return rendered({**found, "entries": page})

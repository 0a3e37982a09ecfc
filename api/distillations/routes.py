"""Full distillations: ask for one, follow it, pause, resume or cancel it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.distillations.schemas import (
    DistillationCurve,
    DistillationDetail,
    DistillationQuery,
    DistillationRequest,
    DistillationShape,
)
from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page, sorting
from api.http.schemas import Page
from api.inputs.data_roots import check_paths
from api.jobs.routes import add_job_routes
from kdnas.db.engine import Database, Session
from kdnas.db.models import Distillation
from kdnas.db.repository import distillation_pages, distillations, jobs, searches
from kdnas.db.repository.distillation_pages import DistillationFilter
from kdnas.search.thinning import evenly
from kdnas.specs.distillation import DistillationSpec

NUM_POINTS, MOST_POINTS = 1000, 10_000
OF_THE_SEARCH = ("teacher", "corpus", "objective", "student")

Reference = Annotated[str, Path(description="Id or name of a distillation.", max_length=200)]

router = APIRouter(tags=["distillations"])


@router.post("/distillations", status_code=202, response_model=DistillationDetail)
def create_distillation(
    request: DistillationRequest, database: DatabaseDep, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for a full distillation; a coordinator takes it up when it has room."""
    given = request.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    # What a search was allowed to read, its distillation is, too.
    check_paths(DistillationSpec.read(given, "body"), settings)
    spec, search_id = _completed(given, request.search, database)

    def create(session: Session) -> Answer:
        record = distillations.create_distillation(
            session,
            spec.to_json(),
            spec.arch,
            name=spec.name,
            owner_kind="service",
            search_id=search_id,
        )
        row = distillation_pages.read_distillation(session, record.id)
        location = f"/api/v1/distillations/{record.id}"
        return Answer(DistillationDetail.model_validate(row), location=location)

    return once.answer(202, create, jobs.require_job)


@router.get("/distillations", response_model=Page[DistillationShape])
def list_distillations(
    query: Annotated[DistillationQuery, Query()], database: DatabaseDep
) -> Response:
    """List distillations, the newest first unless asked otherwise."""
    sort, descending = sorting(query.sort)
    with database.read() as session:
        search_id = None
        if query.search is not None:
            search_id = searches.get_search(session, query.search).id
        wanted = DistillationFilter(
            tuple(query.status), query.owner_kind, query.architecture, search_id
        )
        page = distillation_pages.list_distillations(
            session,
            wanted,
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )
    return rendered_page(page)


@router.get("/distillations/{distillation}/curve", response_model=DistillationCurve)
def read_curve(
    distillation: Reference,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = NUM_POINTS,
) -> Response:
    """Give the training curve and the held-out losses, each thinned to so many points."""
    with database.read() as session:
        found = distillations.get_distillation(session, distillation)
        points = distillation_pages.curve_rows(session, found.id)
        readings = distillations.distillation_readings(session, found.id)
    return rendered(
        {
            "points": [
                {"step": step, "loss": loss, "learning_rate": rate}
                for step, loss, rate in evenly(points, limit)
            ],
            "held_out": [
                {
                    "step": reading.step,
                    **{name: getattr(reading.losses, name) for name in distillation_pages.LOSSES},
                }
                for reading in evenly(readings, limit)
            ],
        }
    )


def _completed(
    given: dict[str, Any], reference: str | None, database: Database
) -> tuple[DistillationSpec, str | None]:
    """Take from a search what the request leaves open; return the search's id, too."""
    if reference is None:
        return DistillationSpec.read(given, "body"), None
    with database.read() as session:
        search = searches.get_search(session, reference)
    taken = {key: search.spec[key] for key in OF_THE_SEARCH if key in search.spec}
    return DistillationSpec.read({**taken, **given}, f"search {search.name!r}"), search.id


def _read(database: Database, session: Session, job_id: str) -> distillation_pages.Row:
    return distillation_pages.read_distillation(session, job_id)


add_job_routes(router, Distillation, "distillations", DistillationDetail, _read)

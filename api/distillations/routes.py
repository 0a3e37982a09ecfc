"""Full distillations: ask for one, follow it, pause, resume or cancel it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.distillations.reading import MOST_POINTS, NUM_POINTS, read_losses, read_page
from api.distillations.schemas import (
    DistillationCurve,
    DistillationDetail,
    DistillationQuery,
    DistillationRequest,
    DistillationShape,
)
from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page
from api.http.schemas import Page
from api.inputs.data_roots import check_paths
from api.jobs.routes import add_job_routes
from kdnas.db.engine import Database, Session
from kdnas.db.lists import distillation_pages
from kdnas.db.models import Distillation
from kdnas.db.repository import distillations, jobs, searches
from kdnas.specs.distillation import DistillationSpec

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
    with database.read() as session:
        return rendered_page(read_page(session, query))


@router.get("/distillations/{distillation}/curve", response_model=DistillationCurve)
def read_curve(
    distillation: Reference,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = NUM_POINTS,
) -> Response:
    """Give the training curve and the held-out losses, each thinned to so many points."""
    with database.read() as session:
        return rendered(read_losses(session, distillation, limit))


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

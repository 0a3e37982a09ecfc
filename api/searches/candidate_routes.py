"""The candidates of a search, and one by itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.rendering import answered, page_as_json, rendered, sorting
from api.http.schemas import Page
from api.searches.remembered import remembered
from api.searches.routes import Reference
from api.searches.schemas import CandidateDetail, CandidateQuery, CandidateShape
from kdnas.db.lists import candidate_pages
from kdnas.db.repository import searches

router = APIRouter(tags=["searches"])


@router.get("/searches/{search}/candidates", response_model=Page[CandidateShape])
def list_candidates(
    search: Reference, query: Annotated[CandidateQuery, Query()], database: DatabaseDep
) -> Response:
    """List a search's candidates, the highest reward first unless asked otherwise."""
    sort, descending = sorting(query.sort)
    with database.read() as session:
        search_id = searches.get_search(session, search).id

        def find() -> bytes:
            page = candidate_pages.list_candidates(
                session,
                search_id,
                query.filter(),
                sort=sort,
                descending=descending,
                limit=query.limit,
                cursor=query.cursor,
            )
            return page_as_json(page)

        key = ("candidates", query.model_dump_json(exclude_defaults=True))
        return answered(remembered(database, session, search_id, key, find))


@router.get("/candidates/{candidate}", response_model=CandidateDetail)
def read_candidate(
    candidate: Annotated[str, Path(description="Id of a candidate.", max_length=200)],
    database: DatabaseDep,
) -> Response:
    """Read a candidate with its trainings and the curve of the one that was kept."""
    with database.read() as session:
        return rendered(candidate_pages.read_candidate(session, candidate))

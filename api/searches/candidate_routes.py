"""The candidates of a search, and one by itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered, sorting
from api.http.schemas import Page
from api.searches.reading import answer_remembered
from api.searches.routes import Reference
from api.searches.schemas import CandidateDetail, CandidateQuery, CandidateShape
from kdnas.db.engine import Session
from kdnas.db.lists import candidate_pages
from kdnas.db.lists.job_pages import Row
from kdnas.db.lists.pages import PageOf
from kdnas.records import SearchRecord

router = APIRouter(tags=["searches"])


@router.get("/searches/{search}/candidates", response_model=Page[CandidateShape])
def list_candidates(
    search: Reference, query: Annotated[CandidateQuery, Query()], database: DatabaseDep
) -> Response:
    """List a search's candidates, the highest reward first unless asked otherwise."""
    sort, descending = sorting(query.sort)

    def find(session: Session, record: SearchRecord) -> PageOf[Row]:
        return candidate_pages.list_candidates(
            session,
            record.id,
            query.filter(),
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )

    asked = query.model_dump_json(exclude_defaults=True)
    return answer_remembered(database, search, ("candidates", asked), find)


@router.get("/candidates/{candidate}", response_model=CandidateDetail)
def read_candidate(
    candidate: Annotated[str, Path(description="Id of a candidate.", max_length=200)],
    database: DatabaseDep,
) -> Response:
    """Read a candidate with its trainings and the curve of the one that was kept."""
    with database.read() as session:
        return rendered(candidate_pages.read_candidate(session, candidate))

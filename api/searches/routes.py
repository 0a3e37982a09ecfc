"""The candidates of a search, one by itself, and all of them as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response, StreamingResponse

from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered, sorting
from api.http.schemas import Page
from api.searches.export import MEDIA_TYPES, ExportFormat, export_chunks
from api.searches.reading import answer_remembered
from api.searches.schemas import CandidateDetail, CandidateQuery, CandidateShape
from kdnas.db.engine import Session
from kdnas.db.lists import candidate_pages
from kdnas.db.lists.job_pages import Row
from kdnas.db.lists.pages import PageOf
from kdnas.db.repository import searches
from kdnas.records import SearchRecord

Reference = Annotated[str, Path(description="Id or name of a search.", max_length=200)]

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
            query.given,
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

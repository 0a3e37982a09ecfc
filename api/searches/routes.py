"""All candidates of a search as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response, StreamingResponse

from api.http.dependencies import DatabaseDep
from api.searches.export import MEDIA_TYPES, ExportFormat, export_chunks
from api.searches.schemas import CandidateShape
from kdnas.db.repository import searches

Reference = Annotated[str, Path(description="Id or name of a search.", max_length=200)]

router = APIRouter(tags=["searches"])


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

"""What a sweep has found, as a file."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.schemas import PROBLEM_TYPE
from api.sweeps.table import sweep_table
from kdnas.db.repository import sweeps

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}

router = APIRouter(tags=["sweeps"])


@router.get(
    "/sweeps/{sweep}/table",
    response_class=Response,
    responses={
        200: {
            "description": "Every reading, a row each, as a file.",
            "content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()},
        },
        409: {
            "description": "No state was read yet.",
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        },
    },
)
def download_sweep_table(
    sweep: Annotated[str, Path(description="Id or name of a sweep.", max_length=200)],
    database: DatabaseDep,
    format: Annotated[Literal["csv", "parquet"], Query()] = "parquet",
) -> Response:
    """Download all readings of a sweep so far, with latencies and sizes."""
    from kdnas.tabular.files import dump_table

    with database.read() as session:
        sweep_id = sweeps.get_sweep(session, sweep).id
        table = sweep_table(session, sweep)
    return Response(
        dump_table(table, f".{format}"),
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="{sweep_id}.{format}"'},
    )

"""The log of a job, of whichever kind."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.logs.job_log import log_so_far, refuse_without_log
from api.logs.text import last_lines
from kdnas.db.repository import jobs

OFFSET_HEADER: Final = "Kdnas-Log-Offset"
_LINES: Final = 1000
_MOST_LINES: Final = 10_000
_MOST_BYTES: Final = 2**63 - 1
_UNENDED: Final = frozenset({"queued", "running", "paused"})

router = APIRouter(tags=["jobs"])


@router.get(
    "/jobs/{job}/log",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "Lines of the log, in UTF-8.",
            "headers": {
                OFFSET_HEADER: {
                    "description": "The next `after`.",
                    "required": True,
                    "schema": {"type": "integer", "minimum": 0},
                }
            },
        }
    },
)
def read_job_log(
    job: Annotated[str, Path(description="Id or name of a job.", max_length=200)],
    database: DatabaseDep,
    settings: SettingsDep,
    tail: Annotated[
        int | None,
        Query(
            ge=1,
            le=_MOST_LINES,
            description="So many of the last lines; 1000 unless `after` is given.",
        ),
    ] = None,
    after: Annotated[
        int | None,
        Query(ge=0, le=_MOST_BYTES, description="What comes after so many bytes, to follow it."),
    ] = None,
) -> Response:
    """Read what the process said that worked on a job: its last lines, or what is new.

    Secrets are blanked. Of a long log the middle is left out, and a line says how much. It is
    there when the process and its machine have gone.
    """
    with database.read() as session:
        row = jobs.get_job(session, job)
        refuse_without_log(row)
        job_id, has_ended = row.id, row.status not in _UNENDED
    text = log_so_far(settings, job_id, has_ended)
    data = text.dump() if after is None else text.after(after)
    most = tail or (_LINES if after is None else None)
    if most is not None:
        data = last_lines(data, most)
    headers = {OFFSET_HEADER: str(max(text.end, after or 0)), "Cache-Control": "no-store"}
    return PlainTextResponse(data.decode(errors="replace"), headers=headers)

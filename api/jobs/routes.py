"""Jobs of every kind: list, read, change, delete; and the same routes for each kind's own path."""

# Without `from __future__ import annotations`: the factory's types are made while it runs.

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered, rendered_page
from api.http.schemas import Page, Shape
from api.jobs.changes import apply_change
from api.jobs.reading import read_job, read_page
from api.jobs.schemas import JobChange, JobDetail, JobQuery, JobShape
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job, kind_of
from kdnas.db.repository import jobs

Reader = Callable[[Database, Session, str], Any]
"""Reads one job as its kind shows it: database, session, id → plain values."""

Force = Annotated[
    bool, Query(description="Also where other jobs stand on it; those are kept without it.")
]


def add_job_routes(
    router: APIRouter, table: type[Job], path: str, detail: type[Shape], read: Reader
) -> None:
    """Give a kind's router what every kind has: read, change and delete one by id or name.

    Args:
        router: of the kind; routes with a fixed path have to be there already.
        table: of the kind.
        path: such as ``searches``.
        detail: shape of one.
        read: reads one.
    """
    kind = "job" if table is Job else kind_of(table)
    noun = kind.replace("_", " ")
    article = "an" if noun[0] in "aeiou" else "a"
    place = f"/{path}/{{{kind}}}"
    Reference = Annotated[  # noqa: N806 (a type)
        str, Path(alias=kind, description=f"Id or name of {article} {noun}.", max_length=200)
    ]

    def read_one(reference: Reference, database: DatabaseDep) -> Response:
        with database.read() as session:
            return rendered(read(database, session, jobs.get_job(session, reference, table).id))

    def change_one(reference: Reference, change: JobChange, database: DatabaseDep) -> Response:
        with database.write() as session:
            job_id = jobs.get_job(session, reference, table).id
            apply_change(session, job_id, change)
        with database.read() as session:
            return rendered(read(database, session, job_id))

    def delete_one(reference: Reference, database: DatabaseDep, force: Force = False) -> None:
        with database.write() as session:
            job_id = jobs.get_job(session, reference, table).id
            jobs.delete_job(session, job_id, with_standing=force)

    router.add_api_route(
        place,
        read_one,
        methods=["GET"],
        name=f"read_{kind}",
        description=f"Read {article} {noun} with what was asked for.",
        response_model=detail,
    )
    router.add_api_route(
        place,
        change_one,
        methods=["PATCH"],
        name=f"change_{kind}",
        description=f"Pause, resume or cancel {article} {noun}, or name, note and label it; "
        "whoever works on it sees that within two seconds.",
        response_model=detail,
    )
    router.add_api_route(
        place,
        delete_one,
        methods=["DELETE"],
        name=f"delete_{kind}",
        status_code=204,
        description=f"Delete {article} {noun} that is not running; jobs that it asked for, and "
        "those that stand on it, are kept.",
    )


router = APIRouter(tags=["jobs"])


@router.get("/jobs", response_model=Page[JobShape])
def list_jobs(query: Annotated[JobQuery, Query()], database: DatabaseDep) -> Response:
    """List jobs of every kind, the newest first; parts of others are under their parents."""
    with database.read() as session:
        return rendered_page(read_page(session, query))


add_job_routes(
    router, Job, "jobs", JobDetail, lambda database, session, job_id: read_job(session, job_id)
)

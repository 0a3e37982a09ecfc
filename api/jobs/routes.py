"""Jobs of every kind: list, read, change, delete; and the same routes for each kind's own path."""

# Without `from __future__ import annotations`: the factory's types are made while it runs.

from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast

import structlog
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page
from api.http.schemas import Page, Shape
from api.jobs.changes import apply_change, delete_job
from api.jobs.kind import JobKind
from api.jobs.reading import read_job, read_page
from api.jobs.schemas import JobChange, JobDetail, JobQuery, JobShape
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job, kind_of
from kdnas.db.repository import jobs
from kdnas.specs.base import Spec

log = structlog.get_logger("kdnas.service")

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

    def delete_one(
        reference: Reference, database: DatabaseDep, settings: SettingsDep, force: Force = False
    ) -> None:
        with database.read() as session:
            job_id = jobs.get_job(session, reference, table).id
        kept = delete_job(job_id, database, settings, with_standing=force)
        if kept is not None:
            log.warning("the log of a deleted job is kept", job=job_id, reason=kept)

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


def _read(database: Database, session: Session, job_id: str) -> Any:
    return read_job(session, job_id)


def routes_of(kind: JobKind) -> Iterable[APIRouter]:
    """Return what answers for a kind: its own routes, or those that its spec makes."""
    if kind.routes is not None:
        return kind.routes()
    return (_plain_routes(kind, kind.spec),) if kind.spec is not None else ()


def _plain_routes(kind: JobKind, spec: type[Spec]) -> APIRouter:
    own = APIRouter(tags=[kind.path])

    def create(request: spec, database: DatabaseDep, once: OnceDep) -> Response:  # type: ignore[valid-type]
        def add(session: Session) -> Answer:
            job = jobs.add_job(
                session,
                kind.table,
                cast(Spec, request).to_json(),
                name=getattr(request, "name", None),
                stem=kind.name,
                **kind.columns(request),
            )
            body = JobDetail.model_validate(read_job(session, job.id))
            return Answer(body, location=f"/api/v1/{kind.path}/{job.id}")

        return once.answer(202, add, jobs.require_job)

    def list_own(query: Annotated[JobQuery, Query()], database: DatabaseDep) -> Response:
        with database.read() as session:
            return rendered_page(read_page(session, query.model_copy(update={"kind": [kind.name]})))

    noun = kind.name.replace("_", " ")
    own.add_api_route(
        f"/{kind.path}",
        create,
        methods=["POST"],
        name=f"create_{kind.name}",
        status_code=202,
        response_model=JobDetail,
        description=f"Ask for a {noun}; a coordinator takes it up when it has room.",
    )
    own.add_api_route(
        f"/{kind.path}",
        list_own,
        methods=["GET"],
        name=f"list_{kind.plural}",
        response_model=Page[JobShape],
        description=f"List jobs of the kind {noun}, the newest first unless asked otherwise.",
    )
    add_job_routes(own, kind.table, kind.path, JobDetail, _read)
    return own


router = APIRouter(tags=["jobs"])


@router.get("/jobs", response_model=Page[JobShape])
def list_jobs(query: Annotated[JobQuery, Query()], database: DatabaseDep) -> Response:
    """List jobs of every kind, the newest first; parts of others are under their parents."""
    with database.read() as session:
        return rendered_page(read_page(session, query))


add_job_routes(router, Job, "jobs", JobDetail, _read)

"""Jobs of every kind: list, read, change, delete; and the same routes for each kind's own path."""

# Without `from __future__ import annotations`: the factory's types are made while it runs.

from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast

import structlog
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered, rendered_page, sorting
from api.http.schemas import Page, Shape
from api.jobs.kind import JobKind
from api.jobs.logs import remove_log
from api.jobs.registry import kind_named, kinds
from api.jobs.schemas import JobChange, JobDetail, JobQuery, JobShape
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job, kind_of
from kdnas.db.repository import job_pages, jobs, names
from kdnas.db.repository.transitions import apply_action
from kdnas.errors import StoreError
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
        with database.write() as session:
            job_id = jobs.get_job(session, reference, table).id
            jobs.delete_job(session, job_id, with_standing=force)
        try:
            remove_log(settings, job_id)
        except StoreError as error:  # the job is gone all the same
            log.warning("the log of a deleted job is kept", job=job_id, reason=str(error))

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


def apply_change(session: Session, job_id: str, change: JobChange) -> None:
    """Do all that a change says, or nothing.

    Raises:
        ConflictError: the job's status forbids the action, or the name is taken.
    """
    if change.note is not None:
        jobs.set_note(session, job_id, change.note)
    if change.labels is not None:
        jobs.set_labels(session, job_id, change.labels)
    if change.action is not None:
        apply_action(session, job_id, change.action)
    if change.name is not None:  # the last, since its event keeps others from writing theirs
        jobs.rename(session, job_id, change.name)


def _read(database: Database, session: Session, job_id: str) -> Any:
    row = job_pages.read_job(session, job_id)
    return {**row, "href": page_of(kinds().get(row["kind"]), job_id)}


def page_of(kind: JobKind | None, job_id: str) -> str:
    """Return where the dashboard shows a job: on its kind's own page, or among all jobs."""
    return f"/{kind.path}/{job_id}" if kind is not None and kind.has_page else f"/jobs/{job_id}"


def routes_of(kind: JobKind) -> Iterable[APIRouter]:
    """Return what answers for a kind: its own routes, or those that its spec makes."""
    if kind.routes is not None:
        return kind.routes()
    return (_plain_routes(kind, kind.spec),) if kind.spec is not None else ()


def _plain_routes(kind: JobKind, spec: type[Spec]) -> APIRouter:
    own = APIRouter(tags=[kind.path])

    def create(request: spec, database: DatabaseDep, once: OnceDep) -> Response:  # type: ignore[valid-type]
        def add(session: Session) -> Answer:
            job = names.add_job(
                session,
                kind.table,
                cast(Spec, request).to_json(),
                name=getattr(request, "name", None),
                stem=kind.name,
                **kind.columns(request),
            )
            body = JobDetail.model_validate(_read(database, session, job.id))
            return Answer(body, location=f"/api/v1/{kind.path}/{job.id}")

        return once.answer(202, add, jobs.require_job)

    def list_own(query: Annotated[JobQuery, Query()], database: DatabaseDep) -> Response:
        return _page(query.model_copy(update={"kind": [kind.name]}), database)

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
    return _page(query, database)


def _page(query: JobQuery, database: Database) -> Response:
    for name in query.kind:
        kind_named(name)
    sort, descending = sorting(query.sort)
    with database.read() as session:
        parent = None if query.parent is None else jobs.get_job(session, query.parent).id
        page = job_pages.list_jobs(
            session,
            query.filter(parent),
            sort=sort,
            descending=descending,
            limit=query.limit,
            cursor=query.cursor,
        )
    return rendered_page(page)


add_job_routes(router, Job, "jobs", JobDetail, _read)

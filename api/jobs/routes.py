"""Jobs: ask for one, list, read, change and delete them, all alike or those of a kind."""

# Without `from __future__ import annotations`: the factory's types are made while it runs.

import importlib
from collections.abc import Iterator
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep, SettingsDep, UserDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered
from api.http.schemas import Page
from api.jobs.changes import apply_change, delete_job
from api.jobs.kind import Adding, JobKind
from api.jobs.reading import ANY, read_job, read_page
from api.jobs.schemas import JobChange
from kdnas.db.engine import Session
from kdnas.db.repository import jobs

log = structlog.get_logger("kdnas.service")

Force = Annotated[
    bool, Query(description="Also where other jobs stand on it; those are kept without it.")
]


def routes_of(kind: JobKind) -> Iterator[APIRouter]:
    """Return what answers for a kind: its own routes, then those that every kind has."""
    for module in kind.routers:
        yield importlib.import_module(module).router
    yield job_router(kind)


def answer_new(kind: JobKind, once: OnceDep, add: Adding) -> Response:
    """Write a job that was asked for and answer with it, unless that was done before."""

    def act(session: Session) -> Answer:
        job_id = add(session)
        body = kind.detail.model_validate(read_job(session, job_id, kind))
        return Answer(body, location=f"/api/v1/{kind.path}/{job_id}")

    return once.answer(202, act, jobs.require_job)


def job_router(kind: JobKind) -> APIRouter:
    """Return the routes that every kind has: list, read, change, delete, and ask for one."""
    noun, nouns = kind.name.replace("_", " "), kind.plural.replace("_", " ")
    article = "an" if noun[0] in "aeiou" else "a"
    place = f"/{kind.path}/{{{kind.name}}}"
    router = APIRouter(tags=[kind.path])
    Reference = Annotated[  # noqa: N806 (a type)
        str, Path(alias=kind.name, description=f"Id or name of {article} {noun}.", max_length=200)
    ]

    def create(
        request: kind.spec,  # type: ignore[name-defined]
        database: DatabaseDep,
        settings: SettingsDep,
        once: OnceDep,
    ) -> Response:
        if (answer := once.earlier(jobs.require_job)) is not None:
            return answer
        new = kind.create(request, database, settings) if kind.create else _as_it_is(kind, request)
        return answer_new(kind, once, new)

    def list_all(
        query: Annotated[kind.query, Query()],  # type: ignore[name-defined]
        database: DatabaseDep,
    ) -> Response:
        with database.read() as session:
            return rendered(read_page(session, query, kind))

    def read_one(reference: Reference, database: DatabaseDep) -> Response:
        with database.read() as session:
            return rendered(read_job(session, reference, kind))

    def change_one(
        reference: Reference, change: JobChange, database: DatabaseDep, user: UserDep
    ) -> Response:
        with database.write(user.name) as session:
            job_id = jobs.id_of(session, reference, kind.table)
            apply_change(session, job_id, change)
        with database.read() as session:
            return rendered(read_job(session, job_id, kind))

    def delete_one(
        reference: Reference,
        database: DatabaseDep,
        settings: SettingsDep,
        user: UserDep,
        force: Force = False,
    ) -> None:
        with database.read() as session:
            job_id = jobs.id_of(session, reference, kind.table)
        kept = delete_job(job_id, database, settings, with_standing=force, by=user.name)
        if kept is not None:
            log.warning("the log of a deleted job is kept", job=job_id, reason=kept)

    if kind.spec is not None:
        router.add_api_route(
            f"/{kind.path}",
            create,
            methods=["POST"],
            name=f"create_{kind.name}",
            status_code=202,
            response_model=kind.detail,
            description=f"Ask for {article} {noun}; a coordinator takes it up when it has room.",
        )
    router.add_api_route(
        f"/{kind.path}",
        list_all,
        methods=["GET"],
        name=f"list_{kind.plural}",
        response_model=Page[kind.shape],  # type: ignore[name-defined]
        description=f"List {nouns}, the newest first unless asked otherwise.",
    )
    router.add_api_route(
        place,
        read_one,
        methods=["GET"],
        name=f"read_{kind.name}",
        response_model=kind.detail,
        description=f"Read {article} {noun} with what was asked for.",
    )
    router.add_api_route(
        place,
        change_one,
        methods=["PATCH"],
        name=f"change_{kind.name}",
        response_model=kind.detail,
        description=f"Pause, resume or cancel {article} {noun}, or name, note and label it; "
        "whoever works on it sees that within two seconds.",
    )
    router.add_api_route(
        place,
        delete_one,
        methods=["DELETE"],
        name=f"delete_{kind.name}",
        status_code=204,
        description=f"Delete {article} {noun} that is not running; jobs that it asked for, and "
        "those that stand on it, are kept.",
    )
    return router


def _as_it_is(kind: JobKind, request: Any) -> Adding:
    def add(session: Session) -> str:
        name = getattr(request, "name", None)
        own = kind.columns(request)
        spec = request.to_json()
        return jobs.add_job(session, kind.table, spec, name=name, stem=kind.name, **own).id

    return add


router = job_router(ANY)

"""Pipelines as a kind of job: without a process of their own, they move on from part to part."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter

from api.jobs.kind import JobKind
from kdnas.db.engine import Database
from kdnas.db.models import Pipeline


def _move_on(database: Database) -> None:
    from api.pipelines.advance import advance_all

    advance_all(database)


def _routes() -> Iterable[APIRouter]:
    from api.pipelines import routes

    return (routes.router,)


KIND = JobKind(
    table=Pipeline, plural="pipelines", run=None, move_on=_move_on, has_page=True, routes=_routes
)

"""Searches as a kind of job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog
from fastapi import APIRouter

from api.jobs.context import JobContext
from api.jobs.kind import JobKind
from kdnas.db.engine import Database
from kdnas.db.exploration import candidates
from kdnas.db.models import Search
from kdnas.db.queue import claims
from kdnas.errors import ConflictError
from kdnas.search.progress import EpisodeDone, EpisodeStarted, Progress
from kdnas.settings import Settings

log = structlog.get_logger("kdnas.jobs")


def _run(context: JobContext) -> None:
    from api.inputs.preparation import Watchers
    from api.searches.run import run_in  # loads torch

    run_in(context, replace(Watchers.of(context), progress=_log))


def _log(event: Progress) -> None:
    if isinstance(event, EpisodeStarted):
        log.info("episode started", episode=event.number, candidates=len(event.candidates))
    elif isinstance(event, EpisodeDone):
        best = event.best
        log.info(
            "episode finished",
            episode=event.number,
            trained=event.num_trained,
            best=None if best is None else str(best.architecture),
            reward=None if best is None else best.reward,
        )


def _needs_cluster(spec: Mapping[str, Any]) -> bool:
    backend = spec.get("backend") or {}
    return backend.get("name", "ray") == "ray" and not backend.get("address")


def _close_attempts(database: Database, settings: Settings) -> None:
    """Close attempts of searches at rest; one that goes on closes its own."""
    with database.read() as session:
        found = claims.left_open(session)
    for search_id in found:
        try:
            with database.write() as session:
                reason = "the process of the search was killed"
                count = candidates.close_open_attempts(session, search_id, reason)
        except ConflictError:  # another coordinator was quicker
            continue
        log.info("closed attempts", search=search_id, count=count)


def _routes() -> Iterable[APIRouter]:
    from api.searches import candidate_routes, episode_routes, routes, space_routes

    return (routes.router, episode_routes.router, candidate_routes.router, space_routes.router)


KIND = JobKind(
    table=Search,
    plural="searches",
    run=_run,
    tidy=_close_attempts,
    needs_cluster=_needs_cluster,
    has_page=True,
    routes=_routes,
)

"""Searches as a kind of job."""

from __future__ import annotations

from dataclasses import replace

import structlog

from api.inputs.clusters import needs_cluster
from api.jobs.context import JobContext
from api.jobs.kind import Adding, JobKind
from api.searches.reading import LISTING
from api.searches.schemas import SearchDetail, SearchQuery, SearchShape
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import candidates
from kdnas.db.models import Search
from kdnas.db.queue import claims
from kdnas.db.repository import searches
from kdnas.errors import ConflictError, told_at
from kdnas.search.progress import EpisodeDone, EpisodeStarted, Progress
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.search import SearchSpec

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


def _create(spec: SearchSpec, database: Database, settings: Settings) -> Adding:
    from api.inputs.data_roots import check_paths
    from controller.strategies import build_strategy

    spec.refuse_contradictions()
    check_paths(spec, settings)
    with told_at("controller.strategy"):  # what cannot be fails here
        build_strategy(spec.controller, SearchSpace.paper(), seed=0)
    if spec.space.kind == "custom":
        with told_at("space.axes"):
            SearchSpace.from_axes(spec.space.axes)

    def add(session: Session) -> str:
        asked = spec.to_json()
        return searches.create_search(session, asked, name=spec.name, owner_kind="service").id

    return add


KIND = JobKind(
    table=Search,
    plural="searches",
    run=_run,
    tidy=_close_attempts,
    needs_cluster=needs_cluster,
    has_page=True,
    spec=SearchSpec,
    create=_create,
    listing=LISTING,
    shape=SearchShape,
    detail=SearchDetail,
    query=SearchQuery,
    routers=("api.searches.routes", "api.searches.episode_routes"),
)

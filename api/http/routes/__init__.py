"""The routes of the service, a module for each thing; here they are put together."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from api.dashboard.pages import add_dashboard
from api.distillations import routes as distillations
from api.evaluations import routes as evaluations
from api.http.routes import architectures, docs, events, health, login, reference, schemas, session
from api.latency_tables import routes as latency_tables
from api.pipelines import routes as pipelines
from api.searches import candidate_routes as candidates
from api.searches import episode_routes as episodes
from api.searches import routes as searches
from api.searches import space_routes as search_space

API_ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    docs.router,
    events.router,
    searches.router,
    episodes.router,
    candidates.router,
    distillations.router,
    evaluations.router,
    pipelines.router,
    latency_tables.router,
    architectures.router,
    search_space.router,
    reference.router,
    schemas.router,
)
"""What answers under ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router, login.router)
"""What answers at the root: probes, and the pages of the dashboard."""


def add_routes(app: FastAPI) -> None:
    """Give the application all of its routes."""
    for router in API_ROUTERS:
        app.include_router(router, prefix="/api/v1")
    for router in ROOT_ROUTERS:
        app.include_router(router)
    add_dashboard(app)

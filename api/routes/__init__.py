"""The routes of the service, a module for each thing; here they are put together."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from api.dashboard.pages import add_dashboard
from api.routes import (
    architectures,
    candidates,
    distillations,
    docs,
    episodes,
    evaluations,
    events,
    health,
    latency_tables,
    login,
    pipelines,
    reference,
    schemas,
    search_space,
    searches,
    session,
)

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

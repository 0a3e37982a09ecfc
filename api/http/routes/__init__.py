"""The routes of the service, a module for each thing; here they are put together."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from api.dashboard.pages import add_dashboard
from api.http.routes import docs, events, health, login, reference, schemas, session
from api.jobs import routes as jobs
from api.jobs.registry import kinds
from api.logs import routes
from api.webhook import routes as webhook

BEFORE: tuple[APIRouter, ...] = (
    *(session.router, docs.router, events.router),
    *(jobs.router, routes.router, webhook.router),
)
AFTER: tuple[APIRouter, ...] = (reference.router, schemas.router)
"""What answers under ``/api/v1`` before and after the routes of each kind of job."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router, login.router)
"""What answers at the root: probes, and the pages of the dashboard."""


def add_routes(app: FastAPI) -> None:
    """Give the application all of its routes."""
    of_kinds = (router for kind in kinds().values() for router in jobs.routes_of(kind))
    for router in (*BEFORE, *of_kinds, *AFTER):
        app.include_router(router, prefix="/api/v1")
    for router in ROOT_ROUTERS:
        app.include_router(router)
    add_dashboard(app)

"""The web application: routes, what every request passes, and what lives as long as the process.

Nothing here loads torch or Ray: work runs in processes of its own, which the coordinator starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

import kdnas
from api.http.errors import add_error_handlers
from api.http.event_hub import EventHub
from api.http.forwarded import Forwarded
from api.http.guard import MAX_BODY_BYTES, Guard
from api.http.issued_tokens import IssuedTokens, LoginRecords
from api.http.limiter import LoginLimiter
from api.http.logs import RequestLog
from api.http.metrics import Metrics
from api.http.openapi import add_openapi
from api.http.readiness import Probe, check_all
from api.http.routes import add_routes
from api.http.security import Access, Entrance, check_tokens
from api.jobs.coordinator import Coordinator
from api.jobs.registry import add_tables_of_packages
from kdnas.db.engine import Database
from kdnas.settings import Settings

REQUEST_THREADS = 6
"""Requests that read or write at a time. Fewer than the database's connections (MOST_CONNECTIONS
of kdnas.db.engine), so that events and coordinator never wait for one behind a crowd; and more
would only take turns, since what Python does is done by one at a time."""

COORDINATOR_ENDS_SECONDS = 6.0
"""What it leaves behind is taken up by the next one; with open requests it makes ten at most."""


def create_app(
    settings: Settings,
    database: Database,
    *,
    coordinator: bool = True,
    login_always: bool = False,
) -> FastAPI:
    """Make the application.

    Args:
        settings: of the environment.
        database: open and migrated; the caller closes it.
        coordinator: whether this process also sees to queued searches and distillations.
        login_always: whether to ask for a token although there is none, since others can come in.

    Raises:
        RequestError: the tokens of the settings protect nothing.
        DatabaseError: the database is out of reach.
    """
    check_tokens(settings)
    add_tables_of_packages(settings)
    app = FastAPI(
        title="kdnas",
        version=kdnas.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        generate_unique_id_function=lambda route: route.name,  # a client's method names
    )
    app.state.settings = settings
    app.state.database = database
    app.state.access = Access(settings, IssuedTokens(database), always=login_always)
    app.state.entrance = Entrance(app.state.access, LoginLimiter(), LoginRecords(database))
    app.state.coordinator = Coordinator(settings, database) if coordinator else None
    app.state.probe = Probe(lambda: check_all(app.state.database, settings, _is_alive(app)))
    app.state.events = EventHub(database)
    app.state.metrics = Metrics(database, lambda: app.state.events.num_listeners)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY_BYTES)  # the innermost
    app.add_middleware(Guard, access=app.state.access, entrance=app.state.entrance)
    app.add_middleware(RequestLog, metrics=app.state.metrics)
    app.add_middleware(Forwarded, trusted=settings.trusted_proxies)  # the outermost
    add_error_handlers(app)
    add_routes(app)
    add_openapi(app, lambda: bool(app.state.access.login_required))
    return app


def _is_alive(app: FastAPI) -> bool | None:
    """Whether the coordinator of this process looks after the queue; None without one."""
    coordinator: Coordinator | None = app.state.coordinator
    return None if coordinator is None else coordinator.alive


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = REQUEST_THREADS
    coordinator: Coordinator | None = app.state.coordinator
    if coordinator is not None:
        coordinator.start()
    yield
    await app.state.events.wait_closed()
    if coordinator is not None:
        await asyncio.to_thread(coordinator.stop, COORDINATOR_ENDS_SECONDS)
    await asyncio.to_thread(app.state.entrance.records.close)

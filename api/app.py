"""The web application: routes, errors and what lives as long as the process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import kdnas
from api.errors import add_error_handlers
from api.routes import add_routes
from kdnas.db.engine import Database
from kdnas.settings import Settings

MAX_BODY_BYTES = 1024 * 1024


def create_app(settings: Settings, database: Database, *, coordinator: bool = True) -> FastAPI:
    """Make the application.

    Args:
        settings: of the environment.
        database: open and migrated; the caller closes it.
        coordinator: whether this process also sees to queued searches and distillations.
    """
    app = FastAPI(
        title="kdnas",
        version=kdnas.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        max_body_size=MAX_BODY_BYTES,
    )
    app.state.settings = settings
    app.state.database = database
    add_error_handlers(app)
    add_routes(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield

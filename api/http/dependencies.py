"""What a route asks for: the database, the settings, who is asking.

A route names what it needs by type::

    @router.get("/things")
    def list_things(database: DatabaseDep, settings: SettingsDep) -> Page[Thing]: ...

All of these are asynchronous since nothing in them waits: FastAPI sends each plain function to
another thread and back, which costs more than many a route.
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from api.http.security import Role
from kdnas.db.engine import Database
from kdnas.settings import Settings


async def get_database(request: Request) -> Database:
    """Return the database of the application."""
    return cast(Database, request.app.state.database)


async def get_settings(request: Request) -> Settings:
    """Return the settings of the application."""
    return cast(Settings, request.app.state.settings)


async def get_role(request: Request) -> Role:
    """Return who is asking, as :mod:`api.http.guard` found."""
    return cast(Role, request.state.role)


DatabaseDep = Annotated[Database, Depends(get_database)]
SettingsDep = Annotated[Settings, Depends(get_settings)]
RoleDep = Annotated[Role, Depends(get_role)]

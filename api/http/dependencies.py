"""What a route asks for: the database, the settings, who is asking.

A route names what it needs by type::

    @router.get("/things")
    def list_things(database: DatabaseDep, settings: SettingsDep) -> Page[Thing]: ...

All of these are asynchronous since nothing in them waits: FastAPI sends each plain function to
another thread and back, which costs more than many a route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request

from api.http.security import Access, Entrance, User
from kdnas.db.engine import Database
from kdnas.settings import Settings


def _of_application(name: str) -> Callable[[Request], Awaitable[Any]]:
    """What :func:`api.http.app.create_app` keeps under a name."""

    async def get(request: Request) -> Any:
        return getattr(request.app.state, name)

    return get


async def _get_user(request: Request) -> User:
    """Return who is asking, as :mod:`api.http.guard` found."""
    user: User = request.state.user
    return user


AccessDep = Annotated[Access, Depends(_of_application("access"))]
DatabaseDep = Annotated[Database, Depends(_of_application("database"))]
EntranceDep = Annotated[Entrance, Depends(_of_application("entrance"))]
SettingsDep = Annotated[Settings, Depends(_of_application("settings"))]
UserDep = Annotated[User, Depends(_get_user)]

"""The database that the environment names, opened for as long as a command needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.db.engine import Database, Session


@contextmanager
def stored() -> Iterator[tuple[Database, Settings]]:
    """Open the database, migrated; give it with the settings that name it.

    Raises:
        DatabaseError: out of reach, outdated (names the command), or newer than this program.
    """
    from kdnas.db.migrate import open_database

    settings = Settings.from_environment()
    with open_database(settings) as database:
        yield database, settings


@contextmanager
def reading() -> Iterator[Session]:
    """Open the database, and read from it only.

    Raises:
        DatabaseError: out of reach, outdated (names the command), or newer than this program.
    """
    with stored() as (database, _), database.read() as session:
        yield session

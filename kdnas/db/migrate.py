"""Bring a database to the tables that this program knows, and refuse what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import cast

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

import kdnas
from kdnas.db.base import Base
from kdnas.db.engine import (
    Database,
    make_engine,
    parse_url,
    prepare_folder,
    shown,
    translated,
    worded,
)
from kdnas.db.models import Search
from kdnas.errors import DatabaseError, SpecError, unknown_name
from kdnas.settings import Settings

METADATA = Search.metadata  # that of Base, with all tables declared
_LOCK = 0x6B646E6173  # "kdnas": the one key of our advisory lock for migrations


def open_database(settings: Settings) -> Database:
    """Open the database of the settings, migrated.

    SQLite is migrated at once; several processes may start together. PostgreSQL is migrated only
    if ``settings.auto_migrate`` says so.

    Raises:
        DatabaseError: out of reach, outdated (names the command), or newer than this program.
    """
    url = parse_url(settings.database_url)
    before = current(settings.database_url)
    if before != head():
        if url.get_backend_name() == "postgresql" and not settings.auto_migrate:
            state = f"is at revision {before}" if before else "is empty"
            raise DatabaseError(
                f"database {shown(url)} {state}, this program needs revision {head()}; run "
                "`kdnas db upgrade`, or set KDNAS_AUTO_MIGRATE=1"
            )
        upgrade(settings.database_url)
    return Database(url)


def head() -> str:
    """The revision that this program needs."""
    return _revisions()[0]


def is_known(revision: str) -> bool:
    """Whether this program knows a revision, so that it can read a database that is there."""
    return revision in _revisions()


def current(database_url: str) -> str | None:
    """The revision of a database, None if it is empty.

    Raises:
        DatabaseError: out of reach, or newer than this program.
    """
    with _connected(database_url, writes=False) as connection:
        return _known_revision(connection)


def upgrade(database_url: str) -> tuple[str | None, str]:
    """Migrate a database to the newest revision; safe to run twice at once.

    Returns:
        The revisions before and after.

    Raises:
        DatabaseError: out of reach, newer than this program, or full; or a migration failed, and
            the database is as it was.
    """
    with _connected(database_url, writes=True) as connection:
        before = _known_revision(connection)
        with _all_or_nothing(connection, before, head()) as config:
            command.upgrade(config, "head")
    return before, head()


def downgrade(database_url: str, revision: str) -> tuple[str, str]:
    """Take a database back to an older revision, for the program that knows no newer one.

    What only newer revisions have a place for is lost, and no other row.

    Returns:
        The revisions before and after.

    Raises:
        SpecError: there is no such revision, or the database is not above it.
        DatabaseError: as of :func:`upgrade`.
    """
    if not is_known(revision):
        raise SpecError(unknown_name("revision", revision, _revisions()))
    with _connected(database_url, writes=True) as connection:
        before = _known_revision(connection)
        if before is None or _revisions().index(before) >= _revisions().index(revision):
            state = f"at revision {before}" if before else "empty"
            raise SpecError(
                f"database {shown(connection.engine.url)} is {state}, which is not above "
                f"{revision}; ask `kdnas db current`"
            )
        with _all_or_nothing(connection, before, revision) as config:
            command.downgrade(config, revision)
    return before, revision


def add_tables(database_url: str, tables: Sequence[type[Base]]) -> None:
    """Make tables of installed packages that are not there yet; safe to run twice at once.

    Ours are made by migrations. A package that changes its own later brings its own way to do it.

    Raises:
        DatabaseError: out of reach, or full.
    """
    with _connected(database_url, writes=True) as connection:
        METADATA.create_all(connection, [cast(Table, table.__table__) for table in tables])


def check(database_url: str) -> list[str]:
    """Differences between the tables of a database and those of this program, in words.

    Raises:
        DatabaseError: out of reach, or newer than this program.
    """
    with _connected(database_url, writes=False) as connection:
        _known_revision(connection)
        options = {
            "compare_type": True,
            "target_metadata": METADATA,
            "include_object": lambda thing, name, kind, *_: kind != "table" or name in our_tables(),
        }
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, METADATA)
        lacking = {d[1].name for d in differences if d[0] == "add_table"}
        return [
            _in_words(d)
            for d in differences
            if not (d[0] == "add_index" and d[1].table.name in lacking)
        ]


def our_tables() -> frozenset[str]:
    """Names of the tables that migrations make; those of installed packages are not among them."""
    ours = (m for m in Base.registry.mappers if m.class_.__module__.startswith("kdnas.db."))
    return frozenset(str(m.local_table.name) for m in ours)  # type: ignore[attr-defined]


def _in_words(difference: object) -> str:
    """A difference as Alembic tells it (what would make the database fit), in words."""
    if isinstance(difference, list):
        return "; ".join(_in_words(part) for part in difference)
    if not isinstance(difference, tuple):
        return str(difference)
    done, *things = difference
    verb, _, kind = str(done).partition("_")
    named = [thing for thing in things if isinstance(thing, str)]
    last = things[-1]
    if verb in _STATES and hasattr(last, "name"):
        table = getattr(last, "table", None)
        owner = "" if table is None else f" of table {table.name}"
        return f"{kind} {last.name}{owner} {_STATES[verb]}"
    return f"{kind} of {'.'.join(named)} is {things[-2]} instead of {last}"


_STATES = {"add": "is missing", "remove": "is not known"}
"""What would be done to make it fit → how it is."""


@contextmanager
def _connected(database_url: str, *, writes: bool) -> Iterator[Connection]:
    """One transaction on a connection of its own, without foreign keys on SQLite.

    Those that write do so one after the other.
    """
    url = parse_url(database_url)
    prepare_folder(url)
    engine = make_engine(url, foreign_keys=False).execution_options(kdnas_write=writes)
    try:
        with translated(url), engine.begin() as connection:
            if writes and connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _all_or_nothing(connection: Connection, before: str | None, after: str) -> Iterator[Config]:
    """Migrate in the transaction of a connection; whatever is raised there undoes all of it.

    That holds on SQLite as well, since its driver is kept from committing before a DDL statement
    (``engine._set_up_sqlite``).
    """
    config = _config()
    config.attributes["connection"] = connection
    try:
        yield config
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise DatabaseError(
                    f"{len(broken)} rows were left without their parent, the first in table "
                    f"{broken[0][0]}"
                )
    except Exception as error:
        url = connection.engine.url
        if isinstance(error, DBAPIError):
            reason = str(worded(error, url))
        else:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            reason = f"database {shown(url)}: {said}"
        state = f"is still at revision {before}" if before else "is as it was"
        raise DatabaseError(
            f"{reason}. The migration to revision {after} was undone, and the database {state}: "
            "see to the reason and try again, or go on with the kdnas that it came from"
        ) from error


def _known_revision(connection: Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and not is_known(revision):
        raise DatabaseError(
            f"database {shown(connection.engine.url)} is at revision {revision}, which kdnas "
            f"{kdnas.__version__} does not know (it knows up to {head()}); install a newer kdnas, "
            "or name another database with KDNAS_DATABASE_URL"
        )
    return revision


@cache
def _revisions() -> tuple[str, ...]:
    """All that this program knows, the newest first; read once, since each is a file to compile."""
    script = ScriptDirectory.from_config(_config())
    found = tuple(each.revision for each in script.walk_revisions())
    if not found:
        raise DatabaseError(f"no migrations in {_folder()}; install kdnas again")
    return found


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    return config


def _folder() -> Path:
    """``migrations`` inside the installed package, or beside it in a working copy."""
    package = Path(str(resources.files("kdnas")))
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"

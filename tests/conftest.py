"""Fixtures that several folders share: databases of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kdnas.settings import Settings


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a running PostgreSQL server."""
    from kdnas.testing.postgres import running_server

    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database."""
    from kdnas.testing.postgres import fresh_database

    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'kdnas.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def database_settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings for that database, migrated when it is opened."""
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    return replace(settings, database_url=database_url, auto_migrate=True)

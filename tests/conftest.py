"""What several folders share: databases of both kinds, and property tests without deadline."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.testing.demo_data import DemoIds

# A busy machine is no failure of the code: no property test has a deadline.
settings.register_profile("kdnas", deadline=None)
settings.load_profile("kdnas")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A test draws the same weights and masks, whatever ran before it in its process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _what_was_loaded_stays() -> None:
    """Full garbage collections, of which measuring does many, are not to go through it anew."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_locks() -> Iterator[None]:
    """Locks of their own, so that tests never wait for a search on the same machine."""
    with tempfile.TemporaryDirectory(prefix="kdnas-test-locks-") as folder:
        before = os.environ.get("KDNAS_LOCKS")
        os.environ["KDNAS_LOCKS"] = folder
        yield
        if before is None:
            del os.environ["KDNAS_LOCKS"]
        else:
            os.environ["KDNAS_LOCKS"] = before


@pytest.fixture(scope="session")
def ray_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HOME of every Ray cluster: Ray keeps a token there, and a process keeps its first."""
    return tmp_path_factory.mktemp("ray-home")


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


@pytest.fixture(scope="session")
def postgres_migrated(postgres_server: str) -> Iterator[str]:
    """URL of a migrated PostgreSQL database, which each test leaves empty."""
    from kdnas.db.migrate import upgrade
    from kdnas.testing.postgres import fresh_database

    with fresh_database(postgres_server) as url:
        upgrade(url)
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    from kdnas.db.migrate import upgrade
    from kdnas.testing.made_once import made_once

    def make(folder: Path) -> None:
        upgrade(f"sqlite:///{folder / 'kdnas.db'}")

    return made_once(tmp_path_factory.getbasetemp(), "migrated", make) / "kdnas.db"


@pytest.fixture(scope="session")
def used_template(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> tuple[Path, DemoIds]:
    """An SQLite file that looks like a week of use, to be copied, and what is in it."""
    from kdnas.db.engine import Database, parse_url
    from kdnas.testing import demo_data
    from kdnas.testing.made_once import made_once

    def make(folder: Path) -> None:
        path = shutil.copy(sqlite_template, folder / "kdnas.db")
        with Database(parse_url(f"sqlite:///{path}")) as database:
            ids = demo_data.fill(database)
        (folder / "ids.json").write_text(json.dumps(asdict(ids)), "utf-8")

    folder = made_once(tmp_path_factory.getbasetemp(), "used", make)
    ids = json.loads((folder / "ids.json").read_text("utf-8"))
    return folder / "kdnas.db", demo_data.DemoIds(**ids)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, a file that names none of the markers asked for.

    Loading all files takes longer than many a selection; these markers are given in files alone.
    """
    asked = set(config.option.markexpr.split(" or "))
    if not asked <= {"slow", "browser", "compat", "gpu"} or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text("utf-8")
    return None if any(f"mark.{name}" in text for name in asked) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test on those databases alone that it, else its module, names; a route on SQLite."""
    wanted = [_wanted(item) for item in items]
    config.hook.pytest_deselected(items=[i for i, w in zip(items, wanted, strict=True) if not w])
    items[:] = [i for i, w in zip(items, wanted, strict=True) if w]


def _wanted(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("databases")
    if marker is not None:
        named = marker.args
        if not named or not {"sqlite", "postgresql"}.issuperset(named):
            raise pytest.UsageError(f"{item.nodeid}: databases{named} names no such databases")
    elif "make_client" in getattr(item, "fixturenames", ()):
        # A route that asks for nothing of its own: what SQL it leads to is tried in kdnas.db.
        named = ("sqlite",)
    else:
        return True
    callspec = getattr(item, "callspec", None)
    kinds = (
        [callspec.params.get(name) for name in ("database_url", "empty_url")] if callspec else []
    )
    return all(kind is None or kind in named for kind in kinds)


KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'kdnas.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a migrated database, once of each kind."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        yield f"sqlite:///{shutil.copy(template, tmp_path / 'kdnas.db')}"
        return
    from kdnas.testing.postgres import clear

    url = request.getfixturevalue("postgres_migrated")
    yield url
    clear(url)


@pytest.fixture
def database(database_url: str, tmp_path: Path) -> Iterator[Database]:
    """An open, migrated database, once of each kind."""
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    environment = {"KDNAS_HOME": str(tmp_path), "KDNAS_DATABASE_URL": database_url}
    with open_database(Settings.from_environment(environment)) as opened:
        yield opened

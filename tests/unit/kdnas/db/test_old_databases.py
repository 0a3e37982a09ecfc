"""Databases that older programs wrote: rows in every table, every kind of work in every state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import MetaData, func, select

from kdnas.db import migrate
from kdnas.db.engine import Database, make_engine, parse_url
from kdnas.db.models import Job, Pipeline, Search
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import ControllerSpec, SearchSpec
from kdnas.specs.strategies import ControllerStrategySpec
from kdnas.testing.every_row import counted, read_back

FILES = sorted((Path(__file__).parents[3] / "data" / "databases").glob("*.gz"))

CHANGES = {"0009": 30, "0010": 2, "0011": 5, "0012": 4, "0013": 2, "0014": 2}
"""Statements of a migration from there that change something, before it is killed."""
KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from kdnas.db import migrate

url, left = sys.argv[1], int(sys.argv[2])

@event.listens_for(Engine, "after_cursor_execute")
def count(connection, cursor, statement, *_):
    global left
    left -= statement.split()[0] in {"CREATE", "INSERT", "UPDATE", "ALTER", "DROP"}
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

migrate.upgrade(url)
"""


@pytest.fixture(params=[pytest.param(f, id=f.name) for f in FILES])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database as one of the files holds it."""
    file: Path = request.param
    url = (
        f"sqlite:///{tmp_path / 'kdnas.db'}"
        if file.name.endswith(".db.gz")
        else str(request.getfixturevalue("postgres_url"))
    )
    read_back(file, url)
    return url


KINDS = {kind.__tablename__ for kind in Job.__subclasses__()}


def rows(url: str) -> dict[str, int]:
    with Database(parse_url(url)) as database:
        return counted(database)


def row_counts(url: str) -> dict[str, int]:
    """Rows of each table of a database as it is, of whichever revision."""
    engine, tables = make_engine(parse_url(url)), MetaData()
    try:
        with engine.begin() as connection:
            tables.reflect(connection)
            return {
                name: connection.scalar(select(func.count()).select_from(table)) or 0
                for name, table in tables.tables.items()
            }
    finally:
        engine.dispose()


def test_there_is_one_of_the_newest_revision_in_each_dialect() -> None:
    assert {f"{migrate.head()}.{kind}.gz" for kind in ("db", "sql")} <= {f.name for f in FILES}


def test_an_old_database_is_migrated_with_all_its_rows(old_url: str) -> None:
    before = row_counts(old_url)
    migrate.upgrade(old_url)
    assert migrate.current(old_url) == migrate.head()
    assert migrate.check(old_url) == []
    after = rows(old_url)
    before.pop("alembic_version")
    assert {table: after[table] for table in before} == before
    assert all(before.values())
    kinds = [table for table in KINDS if table in before]
    assert after["jobs"] == sum(before[table] for table in kinds)


def test_a_downgrade_keeps_all_rows(old_url: str) -> None:
    """To the revision that it came from; of the newest one, to the revision before."""
    came_from, before = str(migrate.current(old_url)), row_counts(old_url)
    migrate.upgrade(old_url)
    is_newest = came_from == migrate.head()
    back_to = migrate._revisions()[1] if is_newest else came_from
    assert migrate.downgrade(old_url, back_to) == (migrate.head(), back_to)
    after = row_counts(old_url)
    expected = {name: before[name] for name in after} if is_newest else before
    assert after == expected
    migrate.upgrade(old_url)
    assert migrate.check(old_url) == []


def test_requests_of_an_old_database_are_read(old_url: str) -> None:
    """Also of searches, whose controllers had no options of their own before revision 0012."""
    before = str(migrate.current(old_url))
    migrate.upgrade(old_url)
    with Database(parse_url(old_url)) as database, database.read() as session:
        found = [
            spec
            for kind, where in ((SearchSpec, Search), (PipelineSpec, Pipeline))
            for job in session.scalars(select(where))
            for spec in (job.requested, job.resolved)
            if spec is not None and kind.read(spec, "stored")
        ]
    stored = [spec.get("search", spec)["controller"] for spec in found]
    assert stored
    strategy = ControllerStrategySpec()
    if before < "0012":
        assert {one["variant"] for one in stored} == {"once"}
        strategy = ControllerStrategySpec(variant="once")
    for one in stored:
        assert ControllerSpec.read(one, "stored").strategy == strategy


def test_a_migration_of_an_old_database_that_is_killed_can_be_repeated(old_url: str) -> None:
    """All or nothing: the revision that was there is still there, with all of its rows."""
    revision, before = migrate.current(old_url), row_counts(old_url)
    if revision == migrate.head():
        return  # there is nothing to be killed in
    command = [sys.executable, "-c", KILLED, old_url, str(CHANGES[str(revision)])]
    assert subprocess.run(command, check=False).returncode == -9
    assert migrate.current(old_url) == revision
    assert row_counts(old_url) == before
    migrate.upgrade(old_url)
    assert migrate.check(old_url) == []


@pytest.mark.parametrize("statements", [3, 60, 100])
def test_a_migration_that_is_killed_can_be_repeated(empty_url: str, statements: int) -> None:
    command = [sys.executable, "-c", KILLED, empty_url, str(statements)]
    assert subprocess.run(command, check=False).returncode == -9
    assert migrate.current(empty_url) is None  # all or nothing
    migrate.upgrade(empty_url)
    assert migrate.check(empty_url) == []

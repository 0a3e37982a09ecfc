"""The commands of ``docs/operations.md``, run as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from sqlalchemy import MetaData, func, select, text

from kdnas.db import migrate
from kdnas.db.engine import make_engine, parse_url
from kdnas.testing.every_row import read_back
from kdnas.testing.postgres import programs

HERE = Path(__file__)
OLD = HERE.parents[3] / "data" / "databases"
PAGE = (HERE.parents[4] / "docs" / "operations.md").read_text("utf-8")
BEFORE = "0012"
"""The revision that the page goes back to."""


def blocks(heading: str) -> list[str]:
    """The commands under a heading, block by block."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


class Shell:
    """A terminal: its folder, its home and its database."""

    def __init__(self, folder: Path, url: str | None = None, **more: str) -> None:
        self.folder, self.home = folder, folder / "home"
        path = f"{Path(sys.executable).parent}:{programs()}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "KDNAS_HOME": str(self.home), **more}
        self.environment.pop("KDNAS_DATABASE_URL", None)
        if url is not None:
            self.environment["KDNAS_DATABASE_URL"] = url
        self.url = url or f"sqlite:///{self.home / 'kdnas.db'}"
        self.home.mkdir()

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def row_counts(url: str) -> dict[str, int]:
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


def lose_all_events(url: str) -> None:
    engine = make_engine(parse_url(url)).execution_options(kdnas_write=True)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM events"))
    engine.dispose()


def test_the_page_has_the_commands_that_are_run_here() -> None:
    run_here = {"What belongs to a backup": 2, "PostgreSQL": 2, "Upgrading": 4, "Cleaning up": 1}
    assert {heading: len(blocks(heading)) for heading in run_here} == run_here
    assert len(re.findall(r"^```", PAGE, re.MULTILINE)) == 2 * sum(run_here.values())


def test_an_installation_on_sqlite_is_backed_up_and_restored(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    read_back(OLD / f"{BEFORE}.db.gz", shell.url)
    before = row_counts(shell.url)
    student, fetched = (
        shell.home / folder / "weights" for folder in ("students/a", "cache/teacher")
    )
    for file in (student, fetched):
        file.parent.mkdir(parents=True)
        file.write_text("of a student", "utf-8")
    back_up, put_back = blocks("What belongs to a backup")
    assert f"revision {BEFORE}" in shell.run(back_up)
    lose_all_events(shell.url)
    student.unlink()
    fetched.unlink()
    assert "what was there before is" in shell.run(put_back)
    assert row_counts(shell.url) == before
    assert student.read_text("utf-8") == "of a student"
    assert not fetched.exists()
    (kept,) = shell.home.glob("kdnas.db.before-restore-*")
    assert row_counts(f"sqlite:///{kept}")["events"] == 0


@pytest.mark.postgres
def test_a_postgres_is_dumped_and_restored(postgres_url: str, tmp_path: Path) -> None:
    restored = urlunsplit(urlsplit(postgres_url)._replace(path="/kdnas_restored"))
    shell = Shell(tmp_path, postgres_url, RESTORED=restored)
    read_back(OLD / f"{BEFORE}.sql.gz", postgres_url)
    before = row_counts(postgres_url)
    dump, put_back = blocks("PostgreSQL")
    assert "TABLE DATA public jobs" in shell.run(dump)
    lose_all_events(postgres_url)
    try:
        assert BEFORE in shell.run(put_back)
        assert row_counts(restored) == before
        migrate.upgrade(restored)
        assert migrate.check(restored) == []
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS kdnas_restored WITH (FORCE)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def test_an_upgrade_and_the_way_back(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_sqlite = dialect == "sqlite"
    url = None if is_sqlite else str(request.getfixturevalue("postgres_url"))
    shell = Shell(tmp_path, url)
    read_back(OLD / f"{BEFORE}.{'db' if is_sqlite else 'sql'}.gz", shell.url)
    before = row_counts(shell.url)
    of_sqlite, of_postgres, upgrade, back = blocks("Upgrading")
    assert shell.run(of_sqlite if is_sqlite else of_postgres).startswith(BEFORE)
    assert (tmp_path / f"kdnas.before-upgrade.{'db' if is_sqlite else 'dump'}").stat().st_size
    assert "the database fits this program" in shell.run(upgrade)
    assert migrate.current(shell.url) == migrate.head()
    assert f"to {BEFORE}" in shell.run(back)
    assert row_counts(shell.url) == before
    migrate.upgrade(shell.url)
    assert migrate.check(shell.url) == []


@pytest.mark.slow
def test_cleaning_up(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    read_back(OLD / f"{BEFORE}.db.gz", shell.url)
    log = shell.home / "jobs" / "0000000000000000" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("of a job that was deleted", "utf-8")
    for path in (log, log.parent):
        os.utime(path, (0, 0))
    (cleaning,) = blocks("Cleaning up")
    assert "removed" in shell.run(cleaning)
    assert not log.parent.exists()

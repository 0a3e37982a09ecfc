"""``kdnas db`` on an SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kdnas.cli.db import app
from kdnas.db import migrate
from kdnas.errors import DatabaseError


def run(command: str) -> str:
    result = CliRunner().invoke(app, [command], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_upgrade_current_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    newest = migrate.head()
    assert run("current").startswith(f"empty (needs {newest}: run `kdnas db upgrade`)")
    assert run("upgrade").startswith(f"migrated from an empty database to revision {newest}")
    assert run("upgrade").startswith(f"already at revision {newest}")
    assert run("current").startswith(f"{newest} (up to date)")
    assert run("check").startswith("the database fits")
    with sqlite3.connect(tmp_path / "kdnas.db") as connection:
        connection.execute("DROP TABLE events")
    connection.close()
    with pytest.raises(DatabaseError, match="table events is missing"):
        run("check")

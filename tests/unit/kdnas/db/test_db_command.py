"""``kdnas db`` on an SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kdnas.cli.db import app
from kdnas.errors import DatabaseError


def run(command: str) -> str:
    result = CliRunner().invoke(app, [command], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_upgrade_current_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    assert run("current").startswith("empty (needs 0003: run `kdnas db upgrade`)")
    assert run("upgrade").startswith("migrated from an empty database to revision 0003")
    assert run("upgrade").startswith("already at revision 0003")
    assert run("current").startswith("0003 (up to date)")
    assert run("check").startswith("the database fits")
    with sqlite3.connect(tmp_path / "kdnas.db") as connection:
        connection.execute("DROP TABLE events")
    connection.close()
    with pytest.raises(DatabaseError, match="add_table"):
        run("check")

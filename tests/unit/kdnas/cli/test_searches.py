"""`kdnas searches show` says beside what was found how sure that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from kdnas.cli.main import app
from kdnas.db.engine import Database
from kdnas.specs.search import Goal
from kdnas.testing import demo_data

pytestmark = pytest.mark.databases("sqlite")


def test_searches_are_listed_with_what_they_have_found(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database_url)
    for goal in get_args(Goal):
        demo_data.add_search(database, f"of-{goal}", goal=goal, episodes=1, candidates_each=4)
    lines = CliRunner().invoke(app, ["searches", "list"]).output.splitlines()
    shown = CliRunner().invoke(app, ["searches", "list", "--json"]).output
    rows = {row["name"]: row for row in json.loads(shown)}
    words = {line.split()[0]: " ".join(line.split()[4:6]) for line in lines}
    assert words == {
        "of-reward": f"reward {rows['of-reward']['best']['reward']:.3f}",
        "of-limit": f"loss {rows['of-limit']['best']['loss']:.3f}",
        "of-front": f"hypervolume {rows['of-front']['hypervolume']:.3f}",
    }


def test_a_search_is_shown_with_how_sure_it_is(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database_url)
    demo_data.add_search(database, "sure", episodes=2, candidates_each=4)
    shown = CliRunner().invoke(app, ["searches", "show", "sure"])
    assert shown.exit_code == 0, shown.output
    assert "Noise is not known: no state was trained with two seeds" in shown.output
    with database.write() as session:
        demo_data.add_second_seed(session)
    shown = CliRunner().invoke(app, ["searches", "show", "sure"])
    assert "Predictions: " in shown.output
    assert "Axes: it takes 12 states to say which matters, not " in shown.output

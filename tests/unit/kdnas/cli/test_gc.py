"""``kdnas gc`` as a user sees it: a table, a question, JSON."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdnas.cli.main import app
from kdnas.db.engine import Database, parse_url
from kdnas.errors import SpecError
from kdnas.settings import Settings
from kdnas.store import Store
from kdnas.testing.job_rows import make_job


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one teacher that nobody needs, and a log of a job that is gone."""
    shutil.copy(sqlite_template, tmp_path / "kdnas.db")
    for name in ("KDNAS_DATABASE_URL", "KDNAS_STORE", "KDNAS_KEEP_EVENTS_DAYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    put_teacher(tmp_path, "teacher-a")
    log = tmp_path / "jobs" / "0000000000000000" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("x" * 2048, "utf-8")
    make_old(log.parent)
    return tmp_path


def put_teacher(home: Path, name: str) -> None:
    store = Store.from_settings(Settings.from_environment({"KDNAS_HOME": str(home)}))
    with store.create("teacher") as draft:
        (draft.folder / "weights").write_bytes(b"w" * 3 * 1024**2)
        draft.publish(name)
    make_old(home / "store" / "teacher" / name)


def make_old(folder: Path) -> None:
    moment = time.time() - 3 * 24 * 3600
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (moment, moment))


def gc(*options: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["gc", *options], input=answer)


def rows(result: Result) -> dict[str, str]:
    lines = [line.split(None, 1) for line in result.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2}


def test_a_dry_run_shows_what_would_go_by_category(home: Path) -> None:
    result = gc("--dry-run")
    assert result.exit_code == 0
    found = rows(result)
    assert found["teacher"].split() == ["1", "3.0", "MiB"]
    assert found["logs"].split() == ["1", "2.0", "KiB"]
    assert found["together"].split() == ["2", "3.0", "MiB"]
    assert (home / "store" / "teacher" / "teacher-a").is_dir()
    assert (home / "jobs" / "0000000000000000").is_dir()


def test_it_asks_before_it_removes(home: Path) -> None:
    assert gc(answer="n\n").exit_code == 1
    assert (home / "store" / "teacher" / "teacher-a").is_dir()
    result = gc(answer="y\n")
    assert result.exit_code == 0
    assert "removed 2, 3.0 MiB" in result.stdout
    assert not (home / "store" / "teacher" / "teacher-a").exists()
    assert gc("--yes").stdout == "nothing to remove\n"


def test_what_is_referred_to_while_it_asks_is_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(*_: object, **__: object) -> bool:
        with Database(parse_url(f"sqlite:///{home / 'kdnas.db'}")) as database:
            make_job(database, name="teacher-a")
        put_teacher(home, "teacher-late")  # was not shown
        return True

    monkeypatch.setattr("typer.confirm", answered)
    assert "removed 1, 2.0 KiB" in gc().stdout
    folders = {path.name for path in (home / "store" / "teacher").iterdir()}
    assert folders == {"teacher-a", "teacher-late"}


def test_json_has_everything_and_asks_nothing(home: Path) -> None:
    refused = gc("--json")
    assert isinstance(refused.exception, SpecError)
    assert "--dry-run, or --yes" in str(refused.exception)
    looked = json.loads(gc("--json", "--dry-run").stdout)
    assert looked["categories"] == [
        {"category": "teacher", "count": 1, "bytes": looked["items"][0]["bytes"]},
        {"category": "logs", "count": 1, "bytes": 2048},
    ]
    assert [one["name"] for one in looked["items"]] == ["teacher-a", "jobs/0000000000000000"]
    assert (looked["dry_run"], looked["removed"], looked["problems"]) == (True, None, [])
    done = json.loads(gc("--json", "--yes").stdout)
    total = sum(one["bytes"] for one in looked["items"])
    assert done["removed"] == {"count": 2, "bytes": total}
    assert not (home / "store" / "teacher" / "teacher-a").exists()


def test_a_longer_margin_and_a_wrong_one(home: Path) -> None:
    assert gc("--dry-run", "--older-than", "96").stdout == "nothing to remove\n"
    assert gc("--older-than", "0").exit_code == 2


def test_events_go_by_the_setting_or_the_option(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import text

    with Database(parse_url(f"sqlite:///{home / 'kdnas.db'}")) as database:
        make_job(database, status="succeeded")
        with database.write() as session:
            session.execute(text("UPDATE events SET created_at = '2020-01-01 00:00:00'"))
    assert "events" not in rows(gc("--dry-run"))
    assert rows(gc("--dry-run", "--keep-events", "7"))["events"].split() == ["1", "-"]
    monkeypatch.setenv("KDNAS_KEEP_EVENTS_DAYS", "90")
    assert rows(gc("--dry-run"))["events"].split() == ["1", "-"]


def test_a_store_elsewhere_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_STORE", "memory://bucket/kdnas")
    said = gc("--dry-run").stdout
    assert "artefacts in memory://bucket/kdnas are not looked at" in said

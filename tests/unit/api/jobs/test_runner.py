"""The runner: its exit codes, what it tells while it prepares, and whose end is its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from api.jobs import runner
from api.jobs.runner import Preparing
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import Distillation, Search
from kdnas.db.repository import claims, distillations, events, searches
from kdnas.db.repository.leases import LeaseOwner
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import SearchSpec

TABLES = {"search": Search, "distillation": Distillation}


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"KDNAS_HOME": str(tmp_path), "KDNAS_CLAIM": "token"}
    return subprocess.Popen(
        [sys.executable, "-m", "api.jobs.runner", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    with start(tmp_path, "search", "unknown") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 75


def test_it_says_how_it_is_called(tmp_path: Path) -> None:
    _, told = start(tmp_path, "dance", "unknown").communicate(timeout=30)
    assert b"python -m api.jobs.runner search|distillation|evaluation|latency ID" in told


@pytest.mark.parametrize("kind", ["search", "distillation", "evaluation", "latency"])
def test_an_unknown_row_is_a_wrong_request(
    kind: runner.Kind, tmp_path: Path, sqlite_template: Path
) -> None:
    environment = {
        "KDNAS_HOME": str(tmp_path),
        "KDNAS_DATABASE_URL": f"sqlite:///{sqlite_template}",
    }
    settings = Settings.from_environment(environment)
    assert runner.run(kind, "unknown", "token", settings, lambda: False) == 2


def test_a_database_out_of_reach_leaves_the_row_alone(tmp_path: Path) -> None:
    environment = {
        "KDNAS_HOME": str(tmp_path),
        "KDNAS_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/nothing",
    }
    settings = Settings.from_environment(environment)
    assert runner.run("search", "any", "token", settings, lambda: False) == 75


def test_preparing_is_told_about_once_a_second(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, owner_kind="service")
    preparing = Preparing(database, "search", search.id)
    began = time.monotonic()
    for step in range(1, 51):
        preparing.on_latency(step / 50, f"{step} of 50 blocks")
    preparing.on_objective("trying teacher layers", 1, 4)
    monkeypatch.setattr(runner, "PREPARING_SECONDS", 0.0)
    preparing.on_objective("trying teacher layers", 4, 4)
    assert time.monotonic() - began < 1.0 or sys.gettrace() is not None
    with database.read() as session:
        told = [
            (event.payload["text"], event.payload["share"])
            for event in events.events_since(session, job_id=search.id)
            if event.type == "search_preparing"
        ]
    assert told == [
        ("latency table: 1 of 50 blocks", 0.02),
        ("trying teacher layers: step 1 of 4", 0.25),
        ("trying teacher layers: step 4 of 4", 1.0),
    ]


def test_a_warning_is_told_once_also_after_a_restart(database: Database) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, owner_kind="service")
        other = searches.create_search(session, {}, owner_kind="service")
    for row_id, text in (
        (search.id, "one"), (search.id, "one"), (search.id, "two"), (other.id, "one"),
    ):  # fmt: skip
        Preparing(database, "search", row_id).on_warning(text)
    with database.read() as session:
        told = {
            row.id: [
                (event.type, event.payload)
                for event in events.events_since(session, job_id=row.id)
                if event.type != "search_created"
            ]
            for row in (search, other)
        }
    one, two = (("search_warning", {"text": text}) for text in ("one", "two"))
    assert told == {search.id: [one, two], other.id: [one]}


@pytest.mark.parametrize("kind", ["search", "distillation"])
def test_a_cluster_out_of_reach_leaves_the_row_alone_and_says_so(
    kind: runner.Kind, tmp_path: Path, sqlite_template: Path
) -> None:
    environment = {"KDNAS_HOME": str(tmp_path), "KDNAS_RAY_ADDRESS": "127.0.0.1:9"}
    shutil.copy(sqlite_template, tmp_path / "kdnas.db")
    settings = Settings.from_environment(environment)
    owner = LeaseOwner.of_this_process("service", "claim")
    with open_database(settings) as database:
        with database.write() as session:
            spec = DistillationSpec.read({"architecture": "2,12,384,768,gelu"}, "test")
            made = (
                searches.create_search(session, SearchSpec().to_json(), owner_kind="service")
                if kind == "search"
                else distillations.create_distillation(
                    session, spec.to_json(), spec.arch, owner_kind="service"
                )
            )
            claim = claims.claim_next(session, TABLES[kind], owner, 60)
            assert claim is not None
        assert runner.run(kind, made.id, "claim", settings, lambda: False) == 75
        with database.read() as session:
            row = session.get_one(TABLES[kind], made.id)
            assert (row.status, row.error) == ("running", None)
            *_, last = events.events_since(session)
    assert last.type == f"{kind}_preparing"
    assert str(last.payload["text"]).startswith(
        "waiting for the cluster: the Ray cluster at '127.0.0.1:9' did not answer"
    )


def test_an_output_folder_that_is_used_fails_the_row_at_once(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """It is the request that is wrong: neither a death nor somebody else who is at work."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "precious.txt").touch()
    shutil.copy(sqlite_template, tmp_path / "kdnas.db")
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    request = {"architecture": "2,12,384,768,gelu", "output": str(tmp_path / "used")}
    spec = DistillationSpec.read(request, "test")
    with open_database(settings) as database:
        with database.write() as session:
            made = distillations.create_distillation(
                session, spec.to_json(), spec.arch, owner_kind="service"
            )
            owner = LeaseOwner.of_this_process("service", "claim")
            assert claims.claim_next(session, Distillation, owner, 60)
        assert runner.run("distillation", made.id, "claim", settings, lambda: False) == 2
        with database.read() as session:
            row = distillations.get_distillation(session, made.id)
    assert row.status == "failed"
    assert "used is not empty; name a new one with --output" in (row.error or "")

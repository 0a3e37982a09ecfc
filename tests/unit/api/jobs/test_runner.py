"""The runner: its exit codes, what it waits for, and whose end is its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.jobs import runner
from kdnas.db.migrate import open_database
from kdnas.db.models import Job
from kdnas.db.queue import claims
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import distillations, events, pipelines, searches
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import SearchSpec


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"KDNAS_HOME": str(tmp_path), "KDNAS_CLAIM": "token"}
    return subprocess.Popen(
        [sys.executable, "-m", "api.jobs.runner", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    with start(tmp_path, "unknown") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(120) == 75


def test_it_says_how_it_is_called(tmp_path: Path) -> None:
    _, told = start(tmp_path, "search", "unknown").communicate(timeout=30)
    assert b"usage: KDNAS_CLAIM=TOKEN python -m api.jobs.runner ID" in told


def test_an_unknown_job_is_a_wrong_request(tmp_path: Path, sqlite_template: Path) -> None:
    environment = {
        "KDNAS_HOME": str(tmp_path),
        "KDNAS_DATABASE_URL": f"sqlite:///{sqlite_template}",
    }
    settings = Settings.from_environment(environment)
    assert runner.run("unknown", "token", settings, lambda: False) == 2


def test_a_job_of_parts_has_no_work_of_its_own(tmp_path: Path, sqlite_template: Path) -> None:
    shutil.copy(sqlite_template, tmp_path / "kdnas.db")
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    with open_database(settings) as database:
        with database.write() as session:
            made = pipelines.create_pipeline(session, {}, name="whole", owner_kind="service")
        assert runner.run(made.id, "token", settings, lambda: False) == 2
        with database.read() as session:
            assert pipelines.get_pipeline(session, made.id).status == "queued"


def test_a_database_out_of_reach_leaves_the_job_alone(tmp_path: Path) -> None:
    environment = {
        "KDNAS_HOME": str(tmp_path),
        "KDNAS_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/nothing",
    }
    settings = Settings.from_environment(environment)
    assert runner.run("any", "token", settings, lambda: False) == 75


@pytest.mark.parametrize("kind", ["search", "distillation"])
def test_a_cluster_out_of_reach_leaves_the_job_alone_and_says_so(
    kind: str, tmp_path: Path, sqlite_template: Path
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
            claim = claims.claim_next(session, [kind], owner, 60)
            assert claim is not None
        assert runner.run(made.id, "claim", settings, lambda: False) == 75
        with database.read() as session:
            row = session.get_one(Job, made.id)
            assert (row.status, row.error) == ("running", None)
            assert row.phase == "waiting for the cluster"
            assert row.phase_since is not None
            *_, last = events.events_since(session)
    assert last.type == f"{kind}_preparing"
    assert str(last.payload["text"]).startswith(
        "waiting for the cluster: the Ray cluster at '127.0.0.1:9' did not answer"
    )


def test_an_output_folder_that_is_used_fails_the_job_at_once(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """It is the request that is wrong: neither a death nor somebody else who is at work."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "precious.txt").touch()
    shutil.copy(sqlite_template, tmp_path / "kdnas.db")
    roots = {"KDNAS_HOME": str(tmp_path), "KDNAS_DATA_ROOTS": str(tmp_path)}
    settings = Settings.from_environment(roots)
    request = {"architecture": "2,12,384,768,gelu", "output": str(tmp_path / "used")}
    spec = DistillationSpec.read(request, "test")
    with open_database(settings) as database:
        with database.write() as session:
            made = distillations.create_distillation(
                session, spec.to_json(), spec.arch, owner_kind="service"
            )
            owner = LeaseOwner.of_this_process("service", "claim")
            assert claims.claim_next(session, ["distillation"], owner, 60)
        assert runner.run(made.id, "claim", settings, lambda: False) == 2
        with database.read() as session:
            row = distillations.get_distillation(session, made.id)
    assert row.status == "failed"
    assert "used is not empty; empty it and go on" in (row.error or "")

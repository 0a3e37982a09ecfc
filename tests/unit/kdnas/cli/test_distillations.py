"""`kdnas distillations` on rows that were written straight into the database."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kdnas.cli.distillations import app
from kdnas.cli.screens.distillation import sparkline
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import Distillation
from kdnas.db.queue import leases
from kdnas.db.records import HeldOutReading
from kdnas.db.repository import distillations, jobs
from kdnas.distill.checkpoint import Checkpoints
from kdnas.errors import ConflictError, NotFoundError, SpecError
from kdnas.records import CurvePoint, Losses, SearchStatus
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def database(home: Path, sqlite_template: Path) -> Iterator[Database]:
    shutil.copy(sqlite_template, home / "kdnas.db")
    with open_database(Settings.from_environment({"KDNAS_HOME": str(home)})) as opened:
        yield opened


def add(
    database: Database, name: str, status: SearchStatus = "paused", objective: str = "hs"
) -> str:
    spec = DistillationSpec.model_validate(
        {"architecture": "3,4,288,384,gelu", "objective": objective, "teacher": "my/teacher"}
    )
    with database.write() as session:
        made = distillations.create_distillation(session, spec.to_json(), spec.arch, name=name)
        if status != "queued":
            distillations.set_distillation_progress(
                session,
                made.id,
                40,
                200,
                [CurvePoint(step, 1 / step, 8e-4) for step in (10, 20, 30, 40)],
                [HeldOutReading(step, Losses(0.1, 0.2, 1 - step / 100, 0.4)) for step in (20, 40)],
            )
        if status == "succeeded":
            distillations.set_distillation_result(
                session,
                made.id,
                metrics={"step": 20, "training": 0.1, "mean": 0.2, "relative": 0.25, "output": 0.4},
                output_path="students/mine",
            )
        error = "the disk is full" if status == "failed" else None
        jobs.set_status(session, made.id, status, error)
    return made.id


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_nothing_yet(home: Path) -> None:
    assert run("list") == "no distillation yet; start one with kdnas full-distill --arch ...\n"
    assert json.loads(run("list", "--json")) == []
    with pytest.raises(NotFoundError, match=r"there is no distillation 'mine'"):
        run("show", "mine")


def test_a_line_each(database: Database) -> None:
    add(database, "waiting", "queued", "minilmv2")
    add(database, "done", "succeeded")
    add(database, "stopped")
    header, *lines = (line.split() for line in run("list").splitlines())
    assert header[:8] == [
        *("name", "status", "architecture", "objective"),
        *("teacher", "step", "relative", "age"),
    ]
    figures = {line[0]: line[1:] for line in lines}
    both = ["3,4,288,384,gelu", "hs", "my/teacher", "40/200"]
    assert figures["stopped"][:6] == ["paused", *both, "0.6000"]
    assert figures["done"][:6] == ["succeeded", *both, "0.2500"]
    assert figures["waiting"][1:5] == ["3,4,288,384,gelu", "minilmv2", "my/teacher", "0"]
    assert [line[0] for line in lines] == ["stopped", "done", "waiting"]


def test_filters(database: Database) -> None:
    add(database, "one", "paused", "minilmv2")
    add(database, "two", "failed", "minilmv2")
    add(database, "three", "failed")

    def names(*arguments: str) -> list[str]:
        return [row["name"] for row in json.loads(run("list", "--json", *arguments))]

    assert names("--status", "failed") == ["three", "two"]
    assert names("--objective", "minilmv2") == ["two", "one"]
    assert names("--objective", "minilmv2", "--status", "failed") == ["two"]
    assert names("--limit", "1") == ["three"]
    assert run("list", "--status", "queued") == (
        "no such distillation; kdnas distillations list shows all\n"
    )
    with pytest.raises(SpecError, match="unknown status 'faild', did you mean 'failed'"):
        run("list", "--status", "faild")
    with pytest.raises(SpecError, match=r"unknown objective 'minilm'.*direct-minilm"):
        run("list", "--objective", "minilm")


def test_a_dead_process_is_told_from_a_living_one(database: Database) -> None:
    alive, dead = add(database, "alive", "running"), add(database, "dead", "running")
    owner = leases.LeaseOwner.of_this_process("cli")
    with database.write() as session:
        leases.acquire(session, Distillation, alive, owner, 60)
    listed = run("list")
    assert "running*" in next(line for line in listed.splitlines() if line.startswith("dead"))
    assert "running " in next(line for line in listed.splitlines() if line.startswith("alive"))
    assert "* its process died; go on with: kdnas distillations resume NAME" in listed
    assert re.search(rf"running, on .+, process {owner.pid}\n", run("show", "alive"))
    assert "running, but its process died" in run("show", dead)


def test_one_in_full(database: Database) -> None:
    identity = add(database, "done", "succeeded")
    text = run("show", "done")
    for fact in (
        f"done  (id {identity})",
        "status       succeeded",
        "architecture 3,4,288,384,gelu",
        "objective    hs, mapping kdnas",
        "teacher      my/teacher",
        "corpus       pydocs, 256 tokens at most",
        "step         40/200",
        "0.1000 at step 10, 0.0250 at step 40",
        "student      students/mine",
        "AutoModel.from_pretrained('students/mine')",
    ):
        assert fact in text
    assert ["20*", "0.8000", "0.4000", "0.2000"] in [line.split() for line in text.splitlines()]
    found = json.loads(run("show", identity, "--json"))
    assert found["id"] == identity
    assert found["spec"]["objective"] == {"name": "hs", "mapping": "kdnas", "last_weight": 1.0}
    losses = json.loads(run("losses", identity))
    assert losses["points"][1] == {"step": 20, "loss": 0.05, "learning_rate": 8e-4}
    assert losses["held_out"][1] == {
        **{"step": 40, "training": 0.1, "mean": 0.2},
        **{"relative": 0.6, "output": 0.4},
    }


def test_a_student_that_has_not_learned_is_shown_with_a_warning(database: Database) -> None:
    identity = add(database, "done", "succeeded")
    assert "warning" not in run("show", "done")
    with database.write() as session:
        distillations.set_distillation_result(
            session, identity, metrics={"step": 40, "relative": 1.1, "output": 1.034}
        )
    assert "warning      has not learned: its held-out output loss is 1.034" in run("show", "done")


def test_the_start_is_shown_beside_the_newest_readings(database: Database) -> None:
    identity = add(database, "long")
    readings = [HeldOutReading(s, Losses(0.1, 0.2, 1 - s / 100, 0.4)) for s in range(0, 100, 10)]
    with database.write() as session:
        distillations.set_distillation_progress(session, identity, 90, 200, (), readings)
    lines = [line.split() for line in run("show", "long").splitlines()]
    shown = [line[0] for line in lines if line[1:] and line[-2:] == ["0.4000", "0.2000"]]
    assert shown == ["0", "40", "50", "60", "70", "80", "90"]
    assert ["0", "1.0000", "0.4000", "0.2000"] in lines
    assert "(3 earlier ones: kdnas distillations losses)" in run("show", "long")


def test_a_failure_is_shown_with_the_way_on(database: Database) -> None:
    add(database, "broken", "failed")
    text = run("show", "broken")
    assert "status       failed: the disk is full" in text
    assert text.endswith("next         kdnas distillations resume broken\n")


def test_cancelling_removes_checkpoints_and_is_final(database: Database, home: Path) -> None:
    identity = add(database, "stopped")
    checkpoints = Checkpoints(str(home / "distillations" / identity / "checkpoints"))
    checkpoints.save({"step": 40}, 40)
    assert run("cancel", "stopped") == "cancelled stopped; its checkpoints are removed\n"
    assert checkpoints.steps() == []
    assert not (home / "distillations" / identity).exists()
    with pytest.raises(ConflictError, match="is cancelled, so it cannot be cancelled"):
        run("cancel", identity)
    with pytest.raises(ConflictError, match=r"was cancelled.*start a new one"):
        run("resume", "stopped")


def test_what_a_kill_left_is_removed_by_cancelling_again(database: Database, home: Path) -> None:
    identity = add(database, "stopped", "cancelled")
    checkpoints = Checkpoints(str(home / "distillations" / identity / "checkpoints"))
    checkpoints.save({"step": 40}, 40)
    with pytest.raises(ConflictError):
        run("cancel", "stopped")
    assert checkpoints.steps() == []


def test_a_runner_keeps_its_checkpoints_to_itself(database: Database, home: Path) -> None:
    identity = add(database, "busy", "running")
    owner = leases.LeaseOwner.of_this_process("cli")
    with database.write() as session:
        leases.acquire(session, Distillation, identity, owner, 60)
    checkpoints = Checkpoints(str(home / "distillations" / identity / "checkpoints"))
    checkpoints.save({"step": 40}, 40)
    said = run("cancel", "busy")
    assert f"cancelled busy; process {owner.pid} on" in said
    assert "stops within seconds" in said
    assert checkpoints.steps() == [40]


def test_cancel_as_json(database: Database) -> None:
    add(database, "waiting", "queued")
    found = json.loads(run("cancel", "waiting", "--json"))
    assert (found["name"], found["status"]) == ("waiting", "cancelled")
    add(database, "done", "succeeded")
    with pytest.raises(ConflictError, match="its student is in students/mine"):
        run("cancel", "done")


def test_a_curve_in_a_line() -> None:
    assert sparkline([0.0, 1.0, 7.0]) == "▁▂█"
    assert sparkline([3.0]) == "▁"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float(value) for value in range(100)], width=8) == "▁▂▃▄▅▆▇█"

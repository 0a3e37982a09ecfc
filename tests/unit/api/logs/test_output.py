"""What a runner prints, read back from its job's log: real processes, and a real runner."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from api.jobs import children
from api.jobs.children import Child, child_environment
from api.logs.job_log import log_so_far
from kdnas.db.migrate import open_database
from kdnas.db.queue import claims
from kdnas.db.queue.claims import Claim
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import apply_action
from kdnas.db.repository import searches
from kdnas.settings import Settings

TALKATIVE = """
import os, sys
print("to stdout, not flushed")
print("the token is", os.environ["SOME_API_TOKEN"], file=sys.stderr)
sys.stderr.write("no end of a line")
sys.stdout.flush()
os._exit(3)
"""
KILLED = "import os; print('before the end'); os.kill(os.getpid(), 9)"
LEAVES_ANOTHER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("the first has ended")
"""
FLOOD = "print('a line of some length, over and over\\n' * 200_000)"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path)})


def start(settings: Settings, job_id: str = "01job") -> Child:
    claim = Claim(
        job_id, "search", "name", LeaseOwner.of_this_process("service", "claim"), {}, False
    )
    return Child.start("search", claim, child_environment(settings), settings)


def read_log(settings: Settings, job_id: str, tail: int) -> str:
    return log_so_far(settings, job_id, has_ended=True).newest(tail).decode()


def finish(child: Child, timeout_seconds: float = 240.0) -> None:
    child.process.wait(timeout_seconds)
    child.forget()
    assert child.output.wait(30)


def run(monkeypatch: pytest.MonkeyPatch, settings: Settings, code: str) -> list[str]:
    monkeypatch.setattr(children, "_PYTHON", (sys.executable, "-c", code))
    finish(start(settings))
    return read_log(settings, "01job", 10_000).splitlines()


def test_both_streams_are_kept_and_stderr_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "a-secret-of-the-environment")
    lines = run(monkeypatch, settings, TALKATIVE)
    assert lines[0].startswith("=== run 1 began ")
    assert sorted(lines[1:4]) == [
        *("no end of a line", "the token is ***", "to stdout, not flushed"),
    ]
    assert lines[4].startswith("=== ended with exit code 3 at ")
    assert capfd.readouterr().err == "the token is ***\nno end of a line\n"


def test_what_was_said_before_a_kill_is_there(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    _, said, ended = run(monkeypatch, settings, KILLED)
    assert said == "before the end"
    assert ended.startswith("=== killed by signal 9 at ")


def test_processes_that_are_left_behind_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    began = time.monotonic()
    assert "the first has ended" in run(monkeypatch, settings, LEAVES_ANOTHER)
    assert time.monotonic() - began < 30  # of the 60 that the other one lives


def test_a_process_that_says_much_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(children, "_PYTHON", (sys.executable, "-c", FLOOD))
    child = start(settings)
    child.process.wait(240)
    finish(child)
    assert "bytes" in read_log(settings, "01job", 100_000)


@pytest.mark.slow  # two processes that load torch
def test_a_runner_tells_its_log_how_its_work_failed(
    settings: Settings, sqlite_template: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(sqlite_template, settings.home / "kdnas.db")
    spec = {"teacher": {"ref": "/nowhere"}, "backend": {"name": "local"}}
    owner = LeaseOwner.of_this_process("service")
    with open_database(settings) as database:
        for run_number in (1, 2):
            with database.write() as session:
                if run_number == 1:
                    job_id = searches.create_search(session, spec, owner_kind="service").id
                claim = claims.claim_next(session, ["search"], owner, 60)
                assert claim is not None
            finish(Child.start("search", claim, child_environment(settings), settings))
            lines = read_log(settings, job_id, 100).splitlines()
            if run_number == 1:
                with database.write() as session:
                    apply_action(session, job_id, "resume")
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(entry["event"], entry["search"]) for entry in said] == [("failed", job_id)] * 2
    assert "/nowhere" in said[0]["reason"]
    ours = [line.split(" at ")[0].split(" began")[0] for line in lines if line.startswith("===")]
    ended = "=== ended with exit code 2"
    assert ours == ["=== run 1", ended, "=== run 2", ended]
    passed_on = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert passed_on == said

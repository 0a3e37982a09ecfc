"""`kdnas distillations` beside a process that distils: seen, cancelled, killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdnas.db.migrate import open_database
from kdnas.db.repository import distillations
from kdnas.settings import Settings
from kdnas.testing.commands import Program
from kdnas.testing.forked import Forked

LONG = (
    "full-distill", "--arch", "2,4,24,48,silu", "--teacher", "teacher", "--corpus", "corpus.txt",
    "--steps", "20000", "--checkpoint-every", "50", "--batch-size", "8", "--max-length", "16",
    "--threads", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program.make(tmp_path_factory.mktemp("distillations"))


def checkpoints(program: Program) -> list[Path]:
    return list((program.folder / "home" / "distillations").glob("**/checkpoint.json"))


@contextmanager
def started(program: Program, name: str) -> Iterator[Forked]:
    """Start a long run and wait for its first checkpoint."""
    process = program.fork(*LONG, "--name", name)
    try:
        deadline = time.monotonic() + 120
        while not checkpoints(program):
            assert not process.has_ended, process.wait(0)
            assert time.monotonic() < deadline, "no checkpoint yet"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()


def status(program: Program, name: str) -> str:
    settings = Settings.from_environment(program.environment)
    with open_database(settings) as database, database.read() as session:
        return distillations.get_distillation(session, name).status


@pytest.mark.slow
def test_a_running_one_is_cancelled_from_another_process(program: Program) -> None:
    with started(program, "long") as process:
        cancel_long(program, process)
    assert status(program, "long") == "cancelled"
    assert checkpoints(program) == []

    resumed = program.run("distillations", "resume", "long")
    assert resumed.code == 2
    assert "was cancelled" in resumed.err


def cancel_long(program: Program, process: Forked) -> None:
    shown = program.run("jobs", "show", "long", "--json").json
    assert shown["worker"].endswith(f", process {process.pid}")
    losses = program.run("distillations", "losses", "long").json
    assert [point["step"] for point in losses["held_out"]][:2] == [0, 50]

    cancelled = program.run("distillations", "cancel", "long")
    assert cancelled.code == 0, cancelled.err
    assert f"process {process.pid} on" in cancelled.out
    ended = process.wait(120)
    assert ended.code == 1, ended.err
    assert "error: distillation 'long' was cancelled" in ended.err
    assert "--resume" not in ended.err
    assert ended.out == ""


@pytest.mark.slow
def test_a_killed_one_is_resumed_and_then_cancelled(program: Program) -> None:
    with started(program, "killed") as process:
        os.kill(process.pid, signal.SIGKILL)
    assert status(program, "killed") == "running"
    assert "its process died" in program.run("distillations", "show", "killed").out
    before = max(int(path.parent.name.removeprefix("step-")) for path in checkpoints(program))

    def further() -> bool:
        steps = [int(path.parent.name.removeprefix("step-")) for path in checkpoints(program)]
        return max(steps, default=0) > before

    stopped = program.interrupt_when(
        further, "distillations", "resume", "killed", signal_number=signal.SIGINT
    )
    assert stopped.code == 130, stopped.err
    assert status(program, "killed") == "paused"
    cancelled = program.run("distillations", "cancel", "killed")
    assert cancelled.out == "cancelled killed; its checkpoints are removed\n"
    assert checkpoints(program) == []

"""Readings from many processes: plan, train, go on, and what becomes a table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from kdnas.architecture import Architecture
from kdnas.records import MiniKDContext
from kdnas.tabular.table import StateRow, Table
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

pytestmark = pytest.mark.slow  # it starts processes

PROGRAMS = Path(__file__).parents[3] / "benchmarks"
STATES = tuple(map(Architecture.parse, ("2,4,48,96,gelu", "1,2,24,96,relu", "3,4,96,48,gelu")))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def pool(
    lab: TinyLab, tmp_path: Path, load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    monkeypatch.setenv("KDNAS_STORE", lab.store.url)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    return load("table_pool")


def card_of(context: MiniKDContext) -> dict[str, object]:
    told = asdict(context)
    left_out = ("seed", "steps", "epochs")
    told["proxy"] = {k: v for k, v in told["proxy"].items() if k not in left_out}
    return {"context": told}


def test_what_is_done_is_not_trained_again_and_becomes_a_table(
    pool: ModuleType, lab: TinyLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = card_of(lab.context())
    groups = list(pool.planned(card, [0, 4], 7, STATES, 2))
    assert [len(group.architectures) for group in groups] == [2, 1]
    assert groups[0].context["proxy"]["seed"] == 7
    file = tmp_path / "rows.jsonl"
    pool.run(groups[:1], pool.JsonLines(file), 1, "cpu", 120)
    assert "2 trained, 0 left, 8 steps" in capsys.readouterr().out
    pool.run(groups, pool.JsonLines(file), 2, "cpu", 120)
    assert "1 trained, 0 left, 4 steps" in capsys.readouterr().out
    rows = pool.JsonLines(file).rows
    assert {row["architecture"] for row in rows} == set(map(str, STATES))
    states = {state: StateRow(1.0 + number) for number, state in enumerate(STATES)}
    like = Table(tuple(pool.table_rows(rows))[:1], states, 9.0, card)
    table = pool.made(like, rows)
    assert (table.states, table.teacher_ms, table.card) == (states, 9.0, card)
    keys = [row.key for row in table.rows]
    assert {(key.seed, key.schedule, key.step) for key in keys} == {(7, 4, 0), (7, 4, 4)}
    assert pool.differences(table, rows) == (
        "after step 0: 3 readings, relative difference median 0.0e+00, mean 0.0e+00, largest "
        "0.0e+00\nafter step 4: 3 readings, relative difference median 0.0e+00, mean 0.0e+00, "
        "largest 0.0e+00"
    )


def test_when_the_time_is_over_what_is_left_is_told(
    pool: ModuleType, lab: TinyLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = list(pool.planned(card_of(lab.context()), [0, 4], 7, STATES, 1))
    pool.run(groups, pool.JsonLines(tmp_path / "rows.jsonl"), 1, "cpu", 0)
    assert capsys.readouterr().out == "0 trained, 3 left, 0 steps in 0 s\n"


def test_a_process_that_dies_is_told(
    pool: ModuleType, lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_STORE", str(tmp_path / "nothing"))
    groups = list(pool.planned(card_of(lab.context()), [0, 4], 7, STATES, 1))
    with pytest.raises(SystemExit, match="a process has died; what is done is kept"):
        pool.run(groups, pool.JsonLines(tmp_path / "rows.jsonl"), 1, "cpu", 120)


def test_processes_end_when_who_asked_them_is_killed(
    pool: ModuleType, lab: TinyLab, tmp_path: Path
) -> None:
    endless = pool.planned(card_of(lab.context()), [0, 10**6], 7, STATES[:1], 1)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([asdict(group) for group in endless]), "utf-8")
    asked = ("run", "--plan", str(plan), "--results", str(tmp_path / "rows.jsonl"))
    program = (sys.executable, str(PROGRAMS / "table_pool.py"), *asked, "--workers", "1")
    with subprocess.Popen(program) as process:
        try:
            worker = _at_work(psutil.Process(process.pid))
        finally:
            process.kill()
    worker.wait(60)


def _at_work(process: psutil.Process) -> psutil.Process:
    """The child of a process that has used five seconds of a core."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in process.children():
            if child.cpu_times().user > 5:
                return child
        time.sleep(0.5)
    raise TimeoutError("no process is at work")

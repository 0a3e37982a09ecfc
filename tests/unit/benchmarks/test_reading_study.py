"""The study of readings distils what a sweep has drawn, goes on, and keeps kinds apart."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from api.sweeps.run import drawn_states
from kdnas.cli.screens.interrupt import Interrupt
from kdnas.errors import NotFoundError
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.files import packaged_tables, read_table
from kdnas.testing.commands import Program


@pytest.fixture
def study(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    reading_measures = load("reading_measures")
    reading_study = load("reading_study")
    monkeypatch.setattr(reading_measures, "RESAMPLES", 20)
    return reading_study


def test_the_states_are_the_first_of_the_sweep_under_other_seeds(study: ModuleType) -> None:
    table = read_table(packaged_tables()["minilm"])
    asked = list(study.requests(table, 3, (1, 2)))
    first = [str(table.space[i]) for i in drawn_states(SweepSpec(states=200), table.space)[:3]]
    assert [spec.architecture for spec in asked] == first * 2
    assert [spec.training.seed for spec in asked] == [1] * 3 + [2] * 3
    training = asked[0].training
    assert (training.steps, training.batch_size) == (1000, 16)
    assert asked[0].student.init == "teacher"
    assert asked[0].objective.to_json() == table.card["context"]["objective"]
    assert (asked[0].corpus.source, asked[0].corpus.max_length) == (("pydocs",), 64)
    assert len({spec.name for spec in asked}) == 6
    assert all(len(spec.name) <= 80 for spec in asked)


def test_a_name_says_what_decides_the_outcome(study: ModuleType) -> None:
    table = read_table(packaged_tables()["minilm"])
    (usual,), (shorter,), (here,) = (
        study.requests(table, 1, (1,), **more) for more in ({}, {"steps": 9}, {"threads": 1})
    )
    assert usual.name != shorter.name
    assert usual.name == here.name
    assert here.training.threads == 1


def test_distillations_of_two_kinds_are_not_put_together(study: ModuleType, tmp_path: Path) -> None:
    row: dict[str, Any] = {"architecture": "1,2,16,32,gelu", "seed": 1, "relative": 0.5}
    assert study.full_runs(tmp_path) == []
    (tmp_path / "a.json").write_text(json.dumps({**row, "about": {"steps": 1000}}))
    (tmp_path / "b.json").write_text(json.dumps({**row, "seed": 2, "about": {"steps": 1000}}))
    assert [one.seed for one in study.full_runs(tmp_path)] == [1, 2]
    (tmp_path / "b.json").write_text(json.dumps({**row, "about": {"steps": 9}}))
    with pytest.raises(SystemExit, match=r"b\.json is a distillation of another kind than .*a\."):
        study.full_runs(tmp_path)


def test_a_table_that_does_not_say_how_it_was_made_is_refused(
    study: ModuleType, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.csv"
    head = "layers,heads,hidden,intermediate,activation,loss,latency_ms"
    bare.write_text(f"{head}\n1,2,16,32,gelu,0.5,1\n")
    with pytest.raises(SystemExit, match="has no card"):
        study.table_of(str(bare))
    with pytest.raises(SystemExit, match="'minilm-rung' is neither"):
        study.table_of("minilm-rung")


@pytest.mark.slow
def test_it_is_interrupted_goes_on_and_is_reported(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a sweep on a tiny teacher to the page."""
    program = Program.make(tmp_path / "a place")
    lines = (program.folder / "tiny.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("controller:", "goal:"))]
    (program.folder / "sweep.yaml").write_text("\n".join(kept))
    steps = ("--config", "sweep.yaml", "--steps", "0,2,4", "--states", "18", "--name", "rungs")
    for words in (("sweep", *steps), ("tabular", "make", "rungs", "--output", "rungs.parquet")):
        done = program.run(*words)
        assert done.code == 0, done.err
    for name, value in program.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(program.folder)
    table, results = study.table_of("rungs.parquet"), tmp_path / "full"
    wanted = list(study.requests(table, 2, (1,), steps=6, threads=1))

    @contextmanager
    def at_once(*_: object) -> Iterator[Interrupt]:
        interrupt = Interrupt()
        interrupt.ask(signal.SIGINT)
        yield interrupt

    with monkeypatch.context() as patched:
        patched.setattr(study, "interruptible", at_once)
        with pytest.raises(SystemExit) as stopped:
            study.run(results, wanted)
    assert stopped.value.code == 130
    assert not any(results.iterdir())
    study.run(results, wanted)
    files = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    assert sorted(files) == sorted(study.file_of(results, spec) for spec in wanted)
    assert not any((program.folder / "home" / "students").iterdir())
    study.run(results, wanted)
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == files
    one, _ = (json.loads(study.file_of(results, spec).read_text()) for spec in wanted)
    assert one["architecture"] == wanted[0].architecture
    assert one["relative"] == min(loss for _, loss in one["readings"])
    assert one["about"]["steps"] == 6

    argv = ["reading_study.py", "report", "--tables", "rungs.parquet", "--results", str(results)]
    monkeypatch.setattr(sys, "argv", [*argv, "--output", str(tmp_path / "page")])
    study.main()
    text = (tmp_path / "page.md").read_text()
    assert "- **The end of 4 steps, 18 states.**" in text
    assert "Distillations with the preset `laptop`, 6 steps" in text
    assert "- Of 48 full distillations 2 are finished." in text
    assert (tmp_path / "page.png").is_file()

    elsewhere = {**table.card, "context": {**table.card["context"], "corpus": "0" * 16}}
    other = study.Table(table.rows, table.states, table.teacher_ms, elsewhere)
    with pytest.raises(NotFoundError, match="0000000000000000"):
        study.run(results, list(study.requests(other, 1, (5,), steps=6, threads=1)))

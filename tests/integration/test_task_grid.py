"""A grid of `kdnas task-distill`, killed among its trials and gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kdnas.db.engine import Session
from kdnas.db.migrate import open_database
from kdnas.db.models import Event, Grid
from kdnas.settings import Settings
from kdnas.testing.commands import Program
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

pytestmark = pytest.mark.slow

DISTIL = (
    "task-distill", "--task", "sst-2", "--data-dir", "glue", "--teacher", "teacher",
    "--student", "first-layers:1", "--method", "vanilla-kd", "--name", "grid",
    "--epochs", "2", "--finetune-epochs", "1", "--teacher-epochs", "1", "--warmup-epochs", "1",
    "--grid-batch-sizes", "8,12,16", "--grid-learning-rates", "5e-3",
    "--device", "cpu", "--threads", "2",
)  # fmt: skip
NUM_POINTS = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("a folder with spaces")
    make_tiny_teacher(folder / "teacher", layers=2, words=WORDS)
    write_sst2(folder / "glue", train=100)
    return Program(folder)


@contextmanager
def stored(program: Program) -> Iterator[Session]:
    settings = Settings.from_environment(program.environment)
    with open_database(settings) as database, database.read() as session:
        yield session


def trials(program: Program) -> list[dict[str, Any]]:
    """Trials of the only grid, in the order in which they ended."""
    with stored(program) as session:
        return [trial for row in session.query(Grid) for trial in row.trials]


def events(program: Program) -> list[str]:
    """Types of all that was told, in order."""
    with stored(program) as session:
        return [event.type for event in session.query(Event)]


def test_a_killed_grid_keeps_its_trials_and_the_best_is_not_trained_again(
    program: Program,
) -> None:
    killed = program.interrupt_when(lambda: bool(trials(program)), *DISTIL)
    assert killed.code == -9
    kept = trials(program)
    assert 1 <= len(kept) < NUM_POINTS
    result = program.run("task-distill", "--resume", "grid", "--json")
    assert result.code == 0, result.err
    assert "Ray" not in result.err + result.out
    after = trials(program)
    assert after[: len(kept)] == kept  # what had ended was not done again
    points = {(trial["point"]["batch_size"], trial["point"]["learning_rate"]) for trial in after}
    assert len(after) == len(points) == NUM_POINTS
    (grid,) = result.json["grids"]
    best = max(after, key=lambda trial: trial["held_out"])
    assert grid["chosen"]["held_out"] == best["held_out"]
    ((run,),) = (row["seeds"] for row in result.json["report"]["rows"])
    assert run["held_out"] == grid["chosen"]["held_out"]
    for name in ("batch_size", "learning_rate"):
        assert run["chosen"][name] == grid["chosen"][name]
    told = events(program)
    # The kill may have come between the last trial and the word of it.
    assert told.count("task_distillation_trial") >= NUM_POINTS - 1
    assert "task_distillation_progress" not in told  # the run of seed 0 made no step of its own
    assert not list((program.folder / "home" / "grids").iterdir())

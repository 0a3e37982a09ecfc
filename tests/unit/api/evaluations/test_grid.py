"""Grids that are known, taken by somebody else, or wanted by two; trials are in integration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.evaluations.grid import chosen_trial
from api.evaluations.kind import KIND
from api.evaluations.prepare import PreparedEvaluation, prepare_evaluation
from api.jobs import grids as grid_run
from kdnas.db.engine import Database
from kdnas.db.models import Grid
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import grids
from kdnas.errors import NoRoomError, TaskDataError, TrainingError
from kdnas.evaluation.finetuning.grid import GridPoint, Trial
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

TRIALS = [
    Trial(GridPoint(1e-5, 1), "pruned", (0.5,)),
    Trial(GridPoint(1e-5, 2), "finished", (0.5, 0.6, 0.7)),
    Trial(GridPoint(1e-3, 1), "finished", (0.5, 0.8, 0.9)),
    Trial(GridPoint(1e-3, 2), "diverged", (-1.0,)),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedEvaluation:
    folder = tmp_path_factory.mktemp("grid")
    make_tiny_teacher(folder / "model", words=WORDS)
    write_sst2(folder / "glue")
    request = {
        "model": str(folder / "model"),
        "suite": "glue",
        "tasks": ["SST-2"],
        "data_dir": str(folder / "glue"),
        "grid": {"learning_rates": [1e-5, 1e-3], "epochs": [1, 2]},
        "device": "cpu",
    }
    return prepare_evaluation(EvaluationSpec.read(request, "test"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")})


def key(prepared: PreparedEvaluation) -> str:
    return prepared.tasks[0].grid_key(prepared.model)


def store(prepared: PreparedEvaluation, database: Database, trials: list[Trial]) -> None:
    with database.write() as session:
        grids.open_grid(session, key(prepared), model="m", task="SST-2")
        for trial in trials:
            grids.add_trial(session, key(prepared), trial.to_json())


def run(
    prepared: PreparedEvaluation,
    database: Database,
    settings: Settings,
    should_stop: Callable[[], bool] = lambda: False,
    tell: Callable[[FinetuneProgress], None] = lambda _: None,
    **more: Any,
) -> Trial | None:
    (planned,) = prepared.tasks
    data = prepared.unchanged_data(planned)
    return chosen_trial(prepared, planned, data, database, settings, tell, should_stop, **more)


def test_the_best_of_known_trials_is_chosen_once_and_for_all(
    prepared: PreparedEvaluation, database: Database, settings: Settings
) -> None:
    store(prepared, database, TRIALS)
    assert run(prepared, database, settings) == TRIALS[2]
    with database.write() as session:
        kept = grids.open_grid(session, key(prepared), model="m", task="SST-2")
        assert [Trial.from_json(trial) for trial in kept.trials] == TRIALS
        better = Trial(GridPoint(1e-5, 1), "finished", (1.0, 1.0, 1.0)).to_json()
        assert Trial.from_json(grids.choose(session, kept.id, better)) == TRIALS[2]
    assert run(prepared, database, settings) == TRIALS[2]


def test_a_grid_of_nothing_but_divergence_is_an_error(
    prepared: PreparedEvaluation, database: Database, settings: Settings
) -> None:
    store(prepared, database, [replace(t, ending="diverged", scores=(-1.0,)) for t in TRIALS])
    with pytest.raises(TrainingError, match="all trials of the grid diverged"):
        run(prepared, database, settings)


def test_a_coordinator_does_something_else_while_another_tries(
    prepared: PreparedEvaluation, database: Database, settings: Settings
) -> None:
    store(prepared, database, [])
    other = LeaseOwner.of_this_process("service")
    with database.write() as session:
        leases.acquire(session, Grid, key(prepared), other, 60.0)
    with pytest.raises(NoRoomError, match="another evaluation tries the grid of SST-2"):
        run(prepared, database, settings, for_service=True)
    assert run(prepared, database, settings, should_stop=iter([False, True]).__next__) is None


def test_a_command_waits_for_what_another_chooses(
    prepared: PreparedEvaluation,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grid_run, "WAIT_SECONDS", 0.01)
    store(prepared, database, TRIALS[:1])
    other, waits = LeaseOwner.of_this_process("cli"), threading.Event()
    with database.write() as session:
        leases.acquire(session, Grid, key(prepared), other, 60.0)
    found: list[Trial | None] = []

    def tell(progress: FinetuneProgress) -> None:
        assert progress.phase == "waiting for the grid of another process"
        waits.set()

    waiting = threading.Thread(
        target=lambda: found.append(run(prepared, database, settings, tell=tell))
    )
    waiting.start()
    assert waits.wait(20)
    with database.write() as session:
        grids.choose(session, key(prepared), TRIALS[2].to_json())
        leases.release(session, Grid, key(prepared), other)
    waiting.join(20)
    assert found == [TRIALS[2]]


def test_too_few_examples_are_told_before_anything_is_started(
    prepared: PreparedEvaluation, database: Database, settings: Settings
) -> None:
    (planned,) = prepared.tasks
    data = prepared.unchanged_data(planned)
    few = replace(data, train=data.train[:1])
    with pytest.raises(TaskDataError, match="cannot be split in two"):
        chosen_trial(prepared, planned, few, database, settings, lambda _: None, lambda: False)


def test_what_the_service_tries_goes_to_its_cluster() -> None:
    assert KIND.needs_cluster({"grid": {"epochs": [1]}})
    assert not KIND.needs_cluster({"grid": None})
    assert not KIND.needs_cluster({})

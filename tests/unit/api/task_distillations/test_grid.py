"""Grids of distillations for a task: tried once, taken up, shared, and what comes of them.

The trials themselves are made up here; real ones are in integration.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.jobs import grids as waiting
from api.jobs.files import task_run_folder
from api.jobs.reading import read_job
from api.task_distillations.grid import GridProgress
from api.task_distillations.kind import KIND
from api.task_distillations.run import (
    TaskWatchers,
    create_task_distillation,
    run_stored_task_distillation,
)
from api.task_distillations.schemas import TaskDistillationDetail
from kdnas.db.engine import Database
from kdnas.db.models import Grid
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import events, grids, task_distillations
from kdnas.errors import TrainingError
from kdnas.records import TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.task_work import TaskWork

pytestmark = pytest.mark.databases("sqlite")

GRID = {"batch_sizes": [8, 16], "learning_rates": [1e-5, 1e-3], "betas": [0.2, 0.5]}
BEST = TaskPoint(16, 1e-3, 0.2)


class Place:
    """A database, a home and work that is made up."""

    def __init__(self, database: Database, home: Path, work: TaskWork) -> None:
        self.database, self.work = database, work
        self.settings = Settings.from_environment({"KDNAS_HOME": str(home)})
        self.data = home / "glue"
        (self.data / "RTE").mkdir(parents=True)
        for part in ("train", "dev"):
            (self.data / "RTE" / f"{part}.tsv").write_text("sentence1\tsentence2\tlabel\n")

    def create(self, **entries: Any) -> str:
        asked = {"task": "RTE", "data_dir": str(self.data), "methods": ["pkd"], "grid": GRID}
        spec = TaskDistillationSpec.read({**asked, **entries}, "task-distill")
        return create_task_distillation(spec, self.database, self.settings).id

    def run(self, job_id: str, **options: Any) -> str:
        return run_stored_task_distillation(job_id, self.database, self.settings, **options)

    def runs(self, job_id: str) -> list[TaskRun]:
        with self.database.read() as session:
            return task_distillations.task_runs(session, job_id)

    def grids(self, job_id: str) -> list[dict[str, Any]]:
        with self.database.read() as session:
            found = read_job(session, job_id, KIND)
        grids: list[dict[str, Any]] = TaskDistillationDetail.model_validate(found).model_dump()[
            "grids"
        ]
        return grids

    def stop_after(self, trials: int) -> Callable[[], bool]:
        return lambda: len(self.work.tried) >= trials


@pytest.fixture
def place(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(database, tmp_path, TaskWork.installed(monkeypatch))


def test_each_method_has_its_grid_before_its_runs(place: Place) -> None:
    job_id, told = place.create(methods=["none", "pkd"], seeds=2), list[GridProgress]()
    assert place.run(job_id, watchers=TaskWatchers(trials=told.append)) == "succeeded"
    assert [name for name, _ in place.work.tried] == ["none"] * 4 + ["pkd"] * 8
    assert len({point for name, point in place.work.tried if name == "pkd"}) == 8
    assert place.work.begun == [(name, seed) for seed in (0, 1) for name in ("none", "pkd")]
    alone = TaskPoint(16, 1e-3, 0.5)  # β as it is without a grid
    assert place.work.trained_with == [alone, BEST] * 2
    assert [(one.done, one.total) for one in told if one.method == "none"] == [
        (done, 4) for done in range(5)
    ]
    none, pkd = place.grids(job_id)
    assert (none["method"], none["points"], none["chosen"]["beta"]) == ("none", 4, None)
    assert (pkd["points"], len(pkd["trials"])) == (8, 8)
    assert pkd["chosen"] == {
        **{"batch_size": 16, "learning_rate": 1e-3, "beta": 0.2},
        **{"held_out": 1e-3, "ending": "finished"},
    }
    with place.database.read() as session:
        found = events.events_since(session, job_id=job_id)
    trials = [event.payload for event in found if event.type == "task_distillation_trial"]
    assert len(trials) == 12
    assert trials[-1] == {"method": "pkd", **pkd["trials"][-1], "done": 8, "total": 8}


def test_the_run_of_the_trials_seed_takes_over_the_best_one(place: Place) -> None:
    job_id, found = place.create(seeds=[3, 0, 4]), {}

    def look(method: str, seed: int) -> None:
        left = task_run_folder(place.settings, job_id, method, seed) / "left"
        found[seed] = left.read_text() if left.is_file() else None

    place.work.before = look
    assert place.run(job_id) == "succeeded"
    assert found == {3: None, 0: str(BEST), 4: None}
    assert not list((place.settings.home / "grids").iterdir())


def test_without_a_run_of_that_seed_nothing_of_trials_is_left(place: Place) -> None:
    assert place.run(place.create(seeds=[3])) == "succeeded"
    assert not list((place.settings.home / "grids").iterdir())


def test_a_stopped_grid_goes_on_with_what_is_not_known(place: Place) -> None:
    job_id = place.create()
    for done in (3, 5):
        assert place.run(job_id, should_stop=place.stop_after(done)) == "paused"
        (grid,) = place.grids(job_id)
        assert (grid["points"], len(grid["trials"]), grid["chosen"]) == (8, done, None)
    assert place.run(job_id) == "succeeded"
    assert len(place.work.tried) == len(set(place.work.tried)) == 8
    assert place.work.trained_with == [BEST]


def test_another_job_takes_what_is_chosen(place: Place) -> None:
    assert place.run(place.create()) == "succeeded"
    other = place.create(seeds=[5])
    assert place.run(other) == "succeeded"
    assert len(place.work.tried) == 8
    assert place.work.trained_with == [BEST, BEST]
    (grid,) = place.grids(other)
    assert grid["chosen"]["learning_rate"] == 1e-3


def test_a_grid_that_diverged_is_what_its_runs_say(place: Place) -> None:
    job_id = place.create(methods=["pkd", "none"], seeds=2)
    place.work.scores = lambda point: None if point.beta is not None else 0.5
    assert place.run(job_id) == "succeeded"
    said = "all 8 trials of the grid of pkd diverged; give smaller rates as `grid.learning_rates`"
    assert [run.error for run in place.runs(job_id)] == [None, None, said, said]
    assert len(place.work.tried) == 12  # the second seed tries nothing again
    alone = place.create()
    with pytest.raises(TrainingError, match=f"none of the 1 runs came to anything.*{said}"):
        place.run(alone)


def test_who_wants_a_grid_that_is_worked_on_waits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAIT_SECONDS", 0.01)
    key, other = "task-grid-pkd", LeaseOwner.of_this_process("cli")
    with place.database.write() as session:
        grids.open_grid(session, key, model="m", task="RTE")
        leases.acquire(session, Grid, key, other, 60.0)
    job_id, waits, ended = place.create(), threading.Event(), list[str]()

    def tell(progress: GridProgress) -> None:
        assert progress.waits
        waits.set()

    watchers = TaskWatchers(trials=tell)
    thread = threading.Thread(target=lambda: ended.append(place.run(job_id, watchers=watchers)))
    thread.start()
    assert waits.wait(20)
    with place.database.write() as session:
        grids.choose(session, key, TaskTrial(BEST, "finished", 0.9, (0.9,)).to_json())
        leases.release(session, Grid, key, other)
    thread.join(20)
    assert ended == ["succeeded"]
    assert place.work.tried == []
    assert place.work.trained_with == [BEST]


def test_without_a_grid_nothing_is_tried(place: Place) -> None:
    job_id = place.create(grid=None)
    assert place.run(job_id) == "succeeded"
    assert (place.work.tried, place.work.trained_with) == ([], [None])
    assert place.grids(job_id) == []
    assert not KIND.needs_cluster({"grid": None})
    assert KIND.needs_cluster({"grid": GRID})

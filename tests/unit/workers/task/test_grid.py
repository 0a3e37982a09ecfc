"""Trials of distillations for a task: in this process, carried, and as the run they become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import cloudpickle

from kdnas.distill.checkpoint import Checkpoints
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.taskspecific.methods.registry import method_named
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.task import grid as task_grid
from workers.task.grid import TaskGridWork
from workers.task.ready import ReadyTask, TaskProgress, prepare_for_task
from workers.task.runs import do_run, let_go, try_out

POINT = TaskPoint(8, 2e-3, 0.3)
METHODS = ("takd", "pkd", "universal-kd-il")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task-grid")
    make_tiny_teacher(folder / "teacher", layers=4, words=WORDS)
    write_sst2(folder / "glue")
    return folder


def prepared(place: Path, **entries: Any) -> ReadyTask:
    asked = {
        "teacher": {"ref": str(place / "teacher"), "epochs": 1, "warmup_epochs": 1},
        "task": "SST-2",
        "data_dir": str(place / "glue"),
        "student": "first-layers:2",
        "methods": METHODS,
        "epochs": 2,
        "finetune_epochs": 1,
        "grid": {"batch_sizes": [8, 16], "learning_rates": [2e-3], "betas": [0.3, 0.6]},
        "device": "cpu",
        "threads": 1,
    }
    spec = TaskDistillationSpec.read({**asked, **entries}, "test")
    ready = prepare_for_task(spec, Settings.from_environment({"KDNAS_HOME": str(place / "home")}))
    assert ready is not None
    return ready


@pytest.fixture(scope="module")
def ready(place: Path) -> ReadyTask:
    return prepared(place)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a cluster."""
    monkeypatch.setattr(task_grid, "this_node", lambda: "here")
    monkeypatch.setattr(task_grid, "handle_here", lambda handle, *_: handle)


def weights(model: Path) -> bytes:
    (file,) = model.glob("*.safetensors")
    return file.read_bytes()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("method", METHODS)
def test_a_carried_trial_is_the_run_it_becomes(
    ready: ReadyTask, method: str, tmp_path: Path
) -> None:
    work = TaskGridWork(
        points=ready.checked.points(method),
        device="cpu",
        threads=1,
        at_once=1,
        ready=ready.for_trials(method, 1),
        method=method,
        trials_folder=tmp_path / "trials",
        node="here",
        store_url=str(tmp_path / "store"),
    )
    carried = cloudpickle.loads(cloudpickle.dumps(work))
    told: list[tuple[int, float, Any]] = []
    carried.try_point(POINT, lambda mark, score, more=None, /: told.append((mark, score, more)))
    ((mark, score, more),) = told
    assert mark == 1
    assert len(more["curve"]) == 3  # of both stages
    assert score == max(more["curve"])

    hyper = POINT.applied_to(ready.checked.hyper)
    anew = do_run(ready, method, 0, tmp_path / "anew", hyper=hyper)
    steps: list[TaskProgress] = []
    folder = tmp_path / "trials" / POINT.as_file_name
    taken = do_run(ready, method, 0, folder, steps.append, hyper=hyper)
    assert not [progress for progress in steps if "stage" in progress.phase]
    assert anew is not None
    assert taken is not None
    assert replace(taken.run, seconds=0) == replace(anew.run, seconds=0)
    assert taken.run.seconds > 0
    assert taken.run.held_out == score
    assert {name: taken.run.chosen[name] for name in ("batch_size", "learning_rate", "beta")} == {
        **{"batch_size": 8, "learning_rate": 2e-3},
        "beta": POINT.beta if method_named(method).uses_beta else None,
    }
    assert weights(folder / "model") == weights(tmp_path / "anew" / "model")
    let_go(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["model"]


def test_a_trial_looks_at_nothing_that_is_reported(
    ready: ReadyTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workers.task.scoring.Scored", lambda *_: pytest.fail("it scores what is reported")
    )
    hyper = POINT.applied_to(ready.checked.hyper)
    assert try_out(ready, "pkd", tmp_path, hyper=hyper) is not None
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("here")
def test_a_killed_trial_goes_on_from_its_checkpoint(ready: ReadyTask, tmp_path: Path) -> None:
    hyper, steps = POINT.applied_to(ready.checked.hyper), list[TaskProgress]()
    stopped = try_out(ready,
        "pkd", tmp_path / "killed", should_stop=lambda: len(steps) == 4, on_progress=steps.append,
        hyper=hyper,
    )  # fmt: skip
    assert stopped is None
    assert Checkpoints(str(tmp_path / "killed" / "checkpoints")).steps() == [4]
    rest: list[TaskProgress] = []
    run = try_out(ready, "pkd", tmp_path / "killed", rest.append, hyper=hyper)
    whole = try_out(ready, "pkd", tmp_path / "whole", hyper=hyper)
    assert rest[0].done == 5
    assert run is not None
    assert whole is not None
    assert run.curve == whole.curve
    own, theirs = (dict(one.student.model.state_dict()) for one in (run, whole))
    assert all(torch.equal(own[name], theirs[name]) for name in own)


def test_what_trials_do_without_is_left_behind(ready: ReadyTask) -> None:
    assert ready.learned.states is not None  # pkd compares them
    assert ready.for_trials("pkd", 3).learned.states is not None
    assert ready.for_trials("takd", 3).learned.states is None
    assert ready.for_trials("takd", 3).spec.threads == 3


def test_grids_are_named_by_what_decides_them(ready: ReadyTask, place: Path) -> None:
    grids = ready.facts.grids
    assert {name: grid["points"] for name, grid in grids.items()} == {
        **{"takd": 2, "pkd": 4},
        "universal-kd-il": 4,
    }
    assert not {"batch_size", "learning_rate", "beta"} & set(ready.facts.settings)
    checked, facts = ready.checked, ready.facts
    teacher, data = facts.teacher["fingerprint"], facts.data
    assert checked.grids(teacher, data) == grids
    # Neither other methods, nor seeds, nor the name of the job decide.
    other = checked.spec.model_copy(update={"methods": ("pkd",), "seeds": (3,), "name": "other"})
    assert replace(checked, spec=other).grids(teacher, data) == {"pkd": grids["pkd"]}
    found = [
        checked.grids("other", data),
        checked.grids(teacher, "other"),
        replace(checked, hyper=replace(checked.hyper, epochs=3)).grids(teacher, data),
        replace(checked, student=checked.assistant or checked.student).grids(teacher, data),
        replace(checked, spec=checked.spec.model_copy(update={"layer_choice": "last"})).grids(
            teacher, data
        ),
    ]
    keys = {one["pkd"]["key"] for one in (grids, *found)}
    assert len(keys) == 6
    without = replace(checked, spec=checked.spec.model_copy(update={"grid": None}))
    assert without.grids(teacher, data) == {}
    assert without.points("pkd") == ()


def test_only_the_best_trial_keeps_its_files(tmp_path: Path) -> None:
    trials = []
    for rate, score in ((1e-5, 0.5), (2e-5, 0.7), (3e-5, None), (5e-5, 0.6)):
        point = TaskPoint(8, rate, None)
        (tmp_path / point.as_file_name).mkdir()
        ending = "diverged" if score is None else "finished"
        trials.append(TaskTrial(point, ending, score))  # type: ignore[arg-type]
        task_grid._keep_best("takd", trials, tmp_path)
        best = max((one.held_out or 0, one.point.as_file_name) for one in trials)[1]
        assert [path.name for path in tmp_path.iterdir()] == [best]

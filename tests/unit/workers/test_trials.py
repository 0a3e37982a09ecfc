"""What Ray Tune's events come to; its runs are in integration."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from kdnas.errors import BackendError, TaskDataError
from workers.trials import (
    DIVERGED,
    MARK,
    MORE,
    POINT,
    SCORE,
    WORST,
    EndedTrial,
    Reading,
    Report,
    TrialWork,
    _meaning,
    _Stop,
    _Watch,
    run_trials,
)

POINTS = ("slow", "quick")


@dataclass(frozen=True)
class Work(TrialWork[str]):
    """Nothing is tried in it."""

    marks = (1, 2, 4)
    prunes = True
    if_memory_ran_out = "with less"

    def try_point(self, point: str, report: Report) -> None:
        raise NotImplementedError


WORK = Work(POINTS, "cpu", 1, 1)


def told(*results: dict[str, Any]) -> list[EndedTrial[str] | Reading[str]]:
    watch = _Watch(WORK)
    for result in results:
        watch.on_trial_result(0, [], SimpleNamespace(trial_id="a"), result)
    last = results[-1] if results else {}
    watch.on_trial_complete(0, [], SimpleNamespace(trial_id="a", last_result=last))
    return [watch.told.get() for _ in range(watch.told.qsize())]


def test_a_trial_that_came_to_its_end_is_finished() -> None:
    first = {SCORE: 0.4, MARK: 1, POINT: 1}
    last = {SCORE: 0.7, MARK: 4, POINT: 1, MORE: {"curve": [0.7]}}
    assert told(first, last) == [
        Reading("quick", 1, 0.4),
        Reading("quick", 4, 0.7),
        EndedTrial("quick", "finished", (0.4, 0.7), {"curve": [0.7]}),
    ]


def test_a_trial_that_was_ended_early_is_pruned() -> None:
    assert told({SCORE: 0.4, MARK: 2, POINT: 0})[-1] == EndedTrial("slow", "pruned", (0.4,))


def test_a_trial_that_diverged_is_known_as_that() -> None:
    result = {SCORE: WORST, MARK: 4, POINT: 0, DIVERGED: True}
    assert told(result)[-1] == EndedTrial("slow", "diverged", (WORST,))


def test_a_trial_without_a_score_is_not_told() -> None:
    assert told() == []


def test_ray_tune_may_write_down_what_it_is_given() -> None:
    event = threading.Event()
    event.set()
    assert _Stop(event).stop_all()
    assert isinstance(pickle.loads(pickle.dumps(_Stop(event))), _Stop)
    assert isinstance(pickle.loads(pickle.dumps(_Watch(WORK))), _Watch)


def test_errors_of_trials_are_worded() -> None:
    ours = TaskDataError("too few examples")
    assert _meaning(RayTaskError("_trial", "traceback", ours), 1, "with less") is ours
    other = _meaning(RuntimeError("killed  by the system"), 2, "with less")
    assert isinstance(other, BackendError)
    assert "2 trials of the grid failed, the first with: killed by the system" in str(other)
    assert str(other).endswith("run the same again, with less if memory ran out")


def test_it_is_told_for_whom_trials_wait_and_when_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([None, "waiting for a", "waiting for a", "waiting for b", None, None])
    over = threading.Event()

    def measured() -> str | None:
        try:
            return next(seen)
        except StopIteration:
            over.set()
            return None

    monkeypatch.setattr("workers.trials.measured_by", measured)
    monkeypatch.setattr("workers.trials.POLL_SECONDS", 0.01)

    def fit(*_: object) -> list[BaseException]:
        over.wait(20)
        return []

    monkeypatch.setattr("workers.trials._fit", fit)
    said: list[str] = []
    assert not run_trials(WORK, [], tmp_path / "ray", lambda _: None, on_wait=said.append)
    assert said == ["waiting for a", "waiting for b", ""]

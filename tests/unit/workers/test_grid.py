"""What Ray Tune's events come to; its runs are in integration."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace
from typing import Any

from ray.exceptions import RayTaskError

from kdnas.errors import BackendError, TaskDataError
from kdnas.evaluation.finetuning.grid import WORST, GridPoint, Trial
from workers.grid import DIVERGED, POINT, QUARTER, SCORE, Reading, _meaning, _Stop, _Watch

POINTS = (GridPoint(1e-5, 3), GridPoint(2e-5, 3))


def told(*results: dict[str, Any]) -> list[Trial | Reading]:
    watch = _Watch(POINTS)
    for result in results:
        watch.on_trial_result(0, [], SimpleNamespace(trial_id="a"), result)
    last = results[-1] if results else {}
    watch.on_trial_complete(0, [], SimpleNamespace(trial_id="a", last_result=last))
    return [watch.told.get() for _ in range(watch.told.qsize())]


def test_a_trial_that_came_to_its_end_is_finished() -> None:
    first, last = {SCORE: 0.4, QUARTER: 1, POINT: 1}, {SCORE: 0.7, QUARTER: 4, POINT: 1}
    assert told(first, last) == [
        Reading(POINTS[1], 1, 0.4),
        Reading(POINTS[1], 4, 0.7),
        Trial(POINTS[1], "finished", (0.4, 0.7)),
    ]


def test_a_trial_that_was_ended_early_is_pruned() -> None:
    assert told({SCORE: 0.4, QUARTER: 2, POINT: 0})[-1] == Trial(POINTS[0], "pruned", (0.4,))


def test_a_trial_that_diverged_is_known_as_that() -> None:
    result = {SCORE: WORST, QUARTER: 4, POINT: 0, DIVERGED: True}
    assert told(result)[-1] == Trial(POINTS[0], "diverged", (WORST,))


def test_a_trial_without_a_score_is_not_told() -> None:
    assert told() == []


def test_ray_tune_may_write_down_what_it_is_given() -> None:
    event = threading.Event()
    event.set()
    assert _Stop(event).stop_all()
    assert isinstance(pickle.loads(pickle.dumps(_Stop(event))), _Stop)
    assert isinstance(pickle.loads(pickle.dumps(_Watch(POINTS))), _Watch)


def test_errors_of_trials_are_worded() -> None:
    ours = TaskDataError("too few examples")
    assert _meaning(RayTaskError("_trial", "traceback", ours), 1) is ours
    other = _meaning(RuntimeError("killed  by the system"), 2)
    assert isinstance(other, BackendError)
    assert "2 trials of the grid failed, the first with: killed by the system" in str(other)

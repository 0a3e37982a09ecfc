"""What two models said about the same examples, set against each other; loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.significance import (
    ENDS,
    Comparison,
    Pair,
    paired_bootstrap,
    resampled_scores,
)
from kdnas.evaluation.scoring.tally import SUMMED, Floats, Tally, average, mean_of, tally
from kdnas.evaluation.tasks.task import RANKED

PREDICTIONS_FILE = "predictions.jsonl"
"""In an evaluation's folder: what was said about each example, a line each."""

_REMEMBERED = 512
_SAME = 1e-6

Line = Mapping[str, Any]
"""What a model said about an example: a line of a file of predictions."""


def write_predictions(folder: Path, result: TaskResult) -> None:
    """Keep what was said about each example, a line each; all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{PREDICTIONS_FILE}.draft"
    with draft.open("w", encoding="utf-8") as stream:
        for name, predictions in result.predictions.items():
            for one in predictions:
                line = {"set": name, **one.to_json()}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    draft.replace(folder / PREDICTIONS_FILE)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of predictions, and the score that was made of them.

    Attributes:
        path: a file that is written once and never changes.
        main: the score.
        metric: key of ``METRIC_NAMES``; None if the score is none of the metrics.
        sets: evaluation sets whose mean the score is.
    """

    path: Path
    main: float
    metric: str | None
    sets: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, result: TaskResult) -> Kept:
        """A file with the result that it belongs to."""
        metric, sets = result.main_metric() or (None, ())
        return cls(path, result.main, metric, sets)


Files = Mapping[tuple[str, int], Kept]
"""Task and seed → predictions."""

FilesOfTask = tuple[tuple[Kept, ...], tuple[Kept, ...]]
"""Predictions of two models, a seed each."""


@dataclass(frozen=True, slots=True)
class Together:
    """Two models over several tasks, with 95 % intervals by drawing their examples anew.

    Attributes:
        difference: ends of the interval of the mean difference.
        share: those of what share the first has of the second's mean; None where that may be 0.
    """

    difference: tuple[float, float]
    share: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class _Aligned:
    """Two models on the same examples of a task.

    Attributes:
        sets: a pair for each evaluation set.
        metric: what is compared; None where that is the mean of what each example scored, which
            need not be the task's score.
    """

    sets: tuple[Pair, ...]
    metric: str | None


def compare(first: Files, second: Files) -> dict[str, Comparison]:
    """Compare two models task by task, over the seeds and examples that both have.

    Returns:
        Task → paired bootstrap of the task's score, or, where that cannot be had from what was
        kept, of what each example scored; without the tasks whose examples differ.
    """
    shared = _shared(first, second)
    found = {task: _compared(*files) for task, files in shared.items()}
    return {task: comparison for task, comparison in found.items() if comparison is not None}


def compare_together(first: Files, second: Files, tasks: Sequence[str]) -> Together | None:
    """Compare two models over several tasks, each of which counts alike.

    Returns:
        None where a task has no seeds and examples that both models share, or a score that cannot
        be had from what was kept of the examples.
    """
    files = _of_tasks(first, second, tasks)
    return None if files is None else _compared_together(files)


def draws_together(first: Files, second: Files, tasks: Sequence[str]) -> Floats | None:
    """Score two models on examples drawn anew, again and again, as :func:`compare_together` does.

    Returns:
        Each model's mean over tasks and shared seeds in each draw, (samples, 2); None where
        :func:`compare_together` has none.
    """
    files = _of_tasks(first, second, tasks)
    return None if files is None else _draws(files)


def interval_over_examples(files: Files, task: str) -> tuple[float, float] | None:
    """Return the ends of the 95 % interval of a model's mean score on a task, by drawing examples.

    It says nothing of how other seeds would turn out.

    Returns:
        None where there are no files, or the score cannot be had from what was kept.
    """
    mine = tuple(kept for (name, _), kept in sorted(files.items()) if name == task)
    return _interval(mine) if mine else None


@lru_cache(maxsize=_REMEMBERED)
def _interval(files: tuple[Kept, ...]) -> tuple[float, float] | None:
    aligned = _aligned(files, files)
    if aligned is None or aligned.metric is None:
        return None
    low, high = np.quantile(resampled_scores([aligned.sets])[:, 0], ENDS)
    return float(low), float(high)


def _of_tasks(first: Files, second: Files, tasks: Sequence[str]) -> tuple[FilesOfTask, ...] | None:
    """Files of both models for each task; None where one has none that both share."""
    shared = _shared(first, second)
    if not tasks or not all(task in shared for task in tasks):
        return None
    return tuple(shared[task] for task in tasks)


def _shared(first: Files, second: Files) -> dict[str, FilesOfTask]:
    """Task → files of both models for the seeds that both have."""
    shared: dict[str, FilesOfTask] = {}
    for task, seed in sorted(first.keys() & second.keys()):
        one, other = shared.get(task, ((), ()))
        shared[task] = ((*one, first[task, seed]), (*other, second[task, seed]))
    return shared


@lru_cache(maxsize=_REMEMBERED)
def _compared(first: tuple[Kept, ...], second: tuple[Kept, ...]) -> Comparison | None:
    aligned = _aligned(first, second)
    return None if aligned is None else paired_bootstrap(aligned.sets, metric=aligned.metric)


@lru_cache(maxsize=_REMEMBERED)
def _compared_together(files: tuple[FilesOfTask, ...]) -> Together | None:
    draws = _draws(files)
    if draws is None:
        return None
    low, high = np.quantile(draws[:, 0] - draws[:, 1], ENDS)
    share = None
    if (draws[:, 1] > 0).all():
        least, most = np.quantile(draws[:, 0] / draws[:, 1], ENDS)
        share = (float(least), float(most))
    return Together((float(low), float(high)), share)


def _draws(files: tuple[FilesOfTask, ...]) -> Floats | None:
    """Scores of two models on drawn examples, (samples, 2); None without scores to draw."""
    tasks = [_aligned(*one) for one in files]
    sets = [task.sets for task in tasks if task is not None and task.metric is not None]
    return resampled_scores(sets) if len(sets) == len(tasks) else None


@lru_cache(maxsize=32)  # one by one and together, each is wanted twice
def _aligned(first: tuple[Kept, ...], second: tuple[Kept, ...]) -> _Aligned | None:
    """Line up what two models said; None unless it is about the very same examples."""
    runs = [[_Run(kept, _read(kept.path)) for kept in model] for model in (first, second)]
    every = [run for model in runs for run in model]
    examples = every[0].examples
    if not examples or any(run.examples != examples for run in every):
        return None
    metrics = {(run.kept.metric, run.kept.sets) for run in every}
    by_metric = [[run.by_metric() for run in model] for model in runs]
    if len(metrics) > 1 or any(tallies is None for model in by_metric for tallies in model):
        one, other = (average([run.by_example() for run in model]) for model in runs)
        return _Aligned(((one, other),), None)
    ((metric, sets),) = metrics
    pairs = [
        tuple(average([tallies[place] for tallies in model if tallies]) for model in by_metric)
        for place in range(len(sets))
    ]
    return _Aligned(tuple((one, other) for one, other in pairs), metric)


def _read(path: Path) -> dict[str, tuple[Line, ...]]:
    """Evaluation set → what was said about its examples, in the order of their ids."""
    found: dict[str, dict[str, Line]] = {}
    with path.open(encoding="utf-8") as stream:
        for line in map(json.loads, stream):
            found.setdefault(line["set"], {})[line["id"]] = line
    return {name: tuple(lines[id_] for id_ in sorted(lines)) for name, lines in found.items()}


@dataclass(frozen=True)
class _Run:
    """What a model with one seed said."""

    kept: Kept
    lines: Mapping[str, tuple[Line, ...]]

    @property
    def examples(self) -> list[tuple[str, str]]:
        return [(name, line["id"]) for name in sorted(self.lines) for line in self.lines[name]]

    def by_example(self) -> Tally:
        """The mean of what each example scored, whatever set it is of."""
        return mean_of([line["score"] for name in sorted(self.lines) for line in self.lines[name]])

    def by_metric(self) -> tuple[Tally, ...] | None:
        """The score by its metric, a tally for each set; None if it cannot be had from the lines.

        Which of a user's two classes F1 is of is in no file: it is the one that gives the score.
        """
        metric, sets = self.kept.metric, [self.lines.get(name, ()) for name in self.kept.sets]
        if metric is None or metric not in SUMMED or not all(sets):
            return None
        for positive in _positives(sets):
            found = tuple(_tally(metric, lines, positive) for lines in sets)
            if abs(fmean(one.value for one in found) - self.kept.main) <= _SAME:
                return found
        return None


def _positives(sets: Sequence[tuple[Line, ...]]) -> list[str | None]:
    """The classes that a score may be of, first of none of them."""
    return [None, *sorted({gold for gold in map(_gold, sets[0]) if isinstance(gold, str)})]


def _tally(metric: str, lines: Sequence[Line], positive: str | None) -> Tally:
    references = [_gold(line) for line in lines]
    # Answers, what was found, and what was written before references were.
    if None in references or metric in RANKED:
        return mean_of([line["score"] for line in lines])
    sets = isinstance(references[0], list) and "words" not in lines[0] and "text" in lines[0]
    answers = [line["prediction"] for line in lines]
    return tally(metric, answers, references, positive, sets=sets)


def _gold(line: Line) -> Any:
    """What is right, of the type of the prediction; None of answers, of which several may be.

    Older files call it a reference.
    """
    gold = line.get("gold", line.get("reference"))
    is_answer = isinstance(gold, list) and isinstance(line["prediction"], str)
    return None if is_answer else gold

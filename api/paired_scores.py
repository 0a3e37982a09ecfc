"""What two models said about the same examples, set against each other; loads no torch.

Predictions lie on the machine that made them, below ``KDNAS_HOME/evaluations``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from api.run_files import PREDICTIONS_FILE, evaluation_folder
from kdnas.db.engine import Session
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.evaluation.significance import Comparison, paired_bootstrap, resampled_scores
from kdnas.settings import Settings

Files = Mapping[tuple[str, int], Path]
"""Task and seed → file of predictions."""

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Scores of two models for each example, the means over the seeds: twice (N,)."""

FilesOfTask = tuple[tuple[Path, ...], tuple[Path, ...]]
"""Files of two models, a seed each."""

ENDS = (0.025, 0.975)
_REMEMBERED = 512


@dataclass(frozen=True, slots=True)
class Together:
    """Two models over several tasks, with intervals by drawing their examples anew.

    Attributes:
        means: mean score of both models on each task.
        difference: ends of the 95 % interval of the mean difference.
        share: those of what share the first has of the second's mean; None where that may be 0.
        examples: how many were compared.
    """

    means: tuple[tuple[float, float], ...]
    difference: tuple[float, float]
    share: tuple[float, float] | None
    examples: int


def prediction_files(
    session: Session, records: Iterable[EvaluationRecord], settings: Settings
) -> dict[tuple[str, int], Path]:
    """Find the predictions that lie on this machine.

    What was looked up in place of being done again has them where it was done first.

    Args:
        session: of any transaction.
        records: evaluations of one model that have succeeded.
        settings: of this process.
    """
    found = {}
    for record in records:
        file = evaluation_folder(settings, record.id) / PREDICTIONS_FILE
        key = record.spec.get(evaluations.KEY)
        if not file.is_file() and key is not None:
            first = evaluations.find_finished(session, key, record.task, record.seed)
            if first is not None:
                file = evaluation_folder(settings, first.id) / PREDICTIONS_FILE
        if file.is_file():
            found[record.task, record.seed] = file
    return found


def compare(first: Files, second: Files) -> dict[str, Comparison]:
    """Compare two models task by task, over the seeds and examples that both have.

    Returns:
        Task → paired bootstrap; without the tasks whose examples differ.
    """
    shared = _shared(first, second)
    found = {task: _compared(*files) for task, files in shared.items()}
    return {task: comparison for task, comparison in found.items() if comparison is not None}


def compare_together(first: Files, second: Files, tasks: Sequence[str]) -> Together | None:
    """Compare two models over several tasks, each of which counts alike.

    Returns:
        None where a task has no seeds and examples that both models share.
    """
    shared = _shared(first, second)
    if not tasks or not all(task in shared for task in tasks):
        return None
    return _compared_together(tuple(shared[task] for task in tasks))


def _shared(first: Files, second: Files) -> dict[str, FilesOfTask]:
    """Task → files of both models for the seeds that both have."""
    shared: dict[str, FilesOfTask] = {}
    for task, seed in sorted(first.keys() & second.keys()):
        one, other = shared.get(task, ((), ()))
        shared[task] = ((*one, first[task, seed]), (*other, second[task, seed]))
    return shared


@lru_cache(maxsize=_REMEMBERED)  # predictions are written once and never change
def _compared(first: tuple[Path, ...], second: tuple[Path, ...]) -> Comparison | None:
    pair = _pair(first, second)
    return None if pair is None else paired_bootstrap(*pair)


@lru_cache(maxsize=_REMEMBERED)
def _compared_together(files: tuple[FilesOfTask, ...]) -> Together | None:
    pairs = [pair for one in files if (pair := _pair(*one)) is not None]
    if len(pairs) < len(files):
        return None
    draws = resampled_scores(pairs)
    differences = np.quantile(draws[:, 0] - draws[:, 1], ENDS)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = draws[:, 0] / draws[:, 1]
    share = np.quantile(ratios, ENDS) if (draws[:, 1] > 0).all() else None
    return Together(
        means=tuple((float(one.mean()), float(other.mean())) for one, other in pairs),
        difference=(float(differences[0]), float(differences[1])),
        share=None if share is None else (float(share[0]), float(share[1])),
        examples=sum(len(one) for one, _ in pairs),
    )


@lru_cache(maxsize=32)  # one by one and together, each is wanted twice
def _pair(first: tuple[Path, ...], second: tuple[Path, ...]) -> Pair | None:
    """Line up the scores of two models; None unless they are of the very same examples."""
    one, other = _mean_scores(first), _mean_scores(second)
    if one.keys() != other.keys() or not one:
        return None
    keys = sorted(one)
    return np.array([one[key] for key in keys]), np.array([other[key] for key in keys])


def _mean_scores(files: tuple[Path, ...]) -> dict[tuple[str, str], float]:
    """Evaluation set and example → mean score over the seeds."""
    examples: dict[tuple[str, str], list[float]] = {}
    for file in files:
        with file.open(encoding="utf-8") as stream:
            for line in map(json.loads, stream):
                examples.setdefault((line["set"], line["id"]), []).append(line["score"])
    return {key: fmean(scores) for key, scores in examples.items()}

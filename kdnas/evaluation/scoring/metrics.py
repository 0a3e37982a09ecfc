"""Scores of predictions: classes, numbers and tags. Answers are scored in ``answers``.

All values lie between 0 and 1, correlations between −1 and 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from seqeval import metrics as spans
from sklearn import metrics

from kdnas.evaluation.data.tag_schemes import is_span_scheme
from kdnas.evaluation.scoring.answers import score_spans
from kdnas.evaluation.tasks.task import Task

__all__ = ["score", "score_spans"]


def score(task: Task, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """Score the predictions of a text or tagging task with each of the task's metrics.

    Classes: F1 is that of the second label where the task names two, else the mean over the
    classes (macro). A class correlation (Matthews) is 0 where one side is constant. Numbers:
    Pearson and Spearman are 0 where one side is constant, since nothing goes with a constant.
    Tags: precision, recall and F1 of whole spans, as seqeval counts them by default, which agrees
    with CoNLL's own program; accuracy is of words.

    Args:
        task: says which metrics, and which label is the positive one.
        predictions: class names, numbers, or sequences of tags.
        references: what is right, as many and of the same type.

    Raises:
        ValueError: not as many predictions as references, none at all, numbers that are not
            finite, or span scores of tags that mark no spans.
    """
    if len(predictions) != len(references) or not len(references):
        raise ValueError(f"{len(predictions)} predictions for {len(references)} references")
    if task.kind == "tagging":
        return _score_tags(task, predictions, references)
    if task.kind == "regression":
        return _score_numbers(task, predictions, references)
    return {name: float(_CLASSES[name](task, predictions, references)) for name in task.metrics}


def _accuracy(task: Task, predictions: Sequence[str], references: Sequence[str]) -> float:
    return float(metrics.accuracy_score(references, predictions))


def _matthews(task: Task, predictions: Sequence[str], references: Sequence[str]) -> float:
    if len(set(predictions)) == 1 or len(set(references)) == 1:
        return 0.0
    return float(metrics.matthews_corrcoef(references, predictions))


def _averaged(
    measure: Callable[..., float],
) -> Callable[[Task, Sequence[str], Sequence[str]], float]:
    """A score of the positive class where there are two by name, else the mean over classes."""

    def scored(task: Task, predictions: Sequence[str], references: Sequence[str]) -> float:
        positive = [task.labels[1]] if task.labels and len(task.labels) == 2 else None
        return float(
            measure(references, predictions, labels=positive, average="macro", zero_division=0)
        )

    return scored


_CLASSES: Mapping[str, Callable[[Task, Sequence[str], Sequence[str]], float]] = {
    "accuracy": _accuracy,
    "f1": _averaged(metrics.f1_score),
    "matthews": _matthews,
    "precision": _averaged(metrics.precision_score),
    "recall": _averaged(metrics.recall_score),
}


def _score_tags(
    task: Task, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    predicted, wanted = [list(p) for p in predictions], [list(r) for r in references]
    for number, (p, w) in enumerate(zip(predicted, wanted, strict=True)):
        if len(p) != len(w):
            raise ValueError(f"{len(p)} tags are predicted for {len(w)} words in sentence {number}")
    every = {tag for sentence in (*predicted, *wanted) for tag in sentence}
    if task.metrics != ("accuracy",) and not is_span_scheme(every):
        raise ValueError(
            f"the tags of {task.name}, such as {min(every - {'O'})!r}, mark no spans; score it by "
            "accuracy"
        )
    return {
        name: float(spans.accuracy_score(wanted, predicted))
        if name == "accuracy"
        else float(_SPANS[name](wanted, predicted, zero_division=0))
        for name in task.metrics
    }


_SPANS: Mapping[str, Callable[..., float]] = {
    "f1": spans.f1_score,
    "precision": spans.precision_score,
    "recall": spans.recall_score,
}


def _score_numbers(
    task: Task, predictions: Sequence[float], references: Sequence[float]
) -> dict[str, float]:
    predicted = np.asarray(predictions, np.float64)
    wanted = np.asarray(references, np.float64)
    if not (np.isfinite(predicted).all() and np.isfinite(wanted).all()):
        raise ValueError(f"predictions or references of {task.name} are not all finite")
    if np.ptp(predicted) == 0 or np.ptp(wanted) == 0:
        return dict.fromkeys(task.metrics, 0.0)
    with warnings.catch_warnings():
        # Nearly constant predictions are what an untrained model makes.
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return {name: float(_NUMBERS[name](predicted, wanted)[0]) for name in task.metrics}


_NUMBERS: Mapping[str, Callable[..., tuple[float, float]]] = {
    "pearson": stats.pearsonr,
    "spearman": stats.spearmanr,
}

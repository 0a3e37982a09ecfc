"""Scores of predictions: classes, numbers and tags. Answers are scored in ``answers``.

All values lie between 0 and 1, correlations between −1 and 1; errors of numbers are in their unit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from seqeval import metrics as spans
from sklearn import metrics

from kdnas.evaluation.data.files.tag_schemes import is_span_scheme
from kdnas.evaluation.scoring.answers import score_spans
from kdnas.evaluation.scoring.tally import tally
from kdnas.evaluation.tasks.task import Task

__all__ = ["score", "score_spans"]


def score(
    task: Task,
    predictions: Sequence[Any],
    references: Sequence[Any],
    probabilities: Sequence[Mapping[str, float]] | None = None,
) -> dict[str, float]:
    """Score the predictions of a text or tagging task with each of the task's metrics.

    Classes: F1 is that of the second label where the task names two, else the mean over the
    classes (macro); ``f1_macro``, ``f1_micro`` and ``f1_weighted`` are over all classes in any
    case. Several classes, or none: the same over the classes that are said or right anywhere;
    ``subset_accuracy`` is the share of examples all of whose classes are met, ``f1_samples`` the
    mean F1 of each example's classes, 1 where there are none and none is said. AUC is that of the
    second label, of more than two classes the mean of each against the others; ECE is the expected
    calibration error of the likeliest class in 15 bins of equal width (Guo et al. 2017), smaller
    where probabilities are truer. A class correlation (Matthews) is 0 where one side is constant.
    Numbers: so are Pearson and Spearman, since nothing goes with a constant; R² is that of
    scikit-learn. Tags: precision, recall and F1 of whole spans, as seqeval counts them by default,
    which agrees with CoNLL's own program; accuracy is of words.

    Args:
        task: says which metrics, and which label is the positive one.
        predictions: class names, collections of them, numbers, or sequences of tags.
        references: what is right, as many and of the same type.
        probabilities: label → how likely, of each prediction; what AUC and ECE need.

    Raises:
        ValueError: not as many predictions as references, none at all, numbers that are not
            finite, span scores of tags that mark no spans, or probabilities are needed and not
            given.
    """
    if len(predictions) != len(references) or not len(references):
        raise ValueError(f"{len(predictions)} predictions for {len(references)} references")
    if task.kind == "tagging":
        return _score_tags(task, predictions, references)
    if task.kind == "regression":
        return _score_numbers(task, predictions, references)
    if task.kind == "multilabel":
        return _score_sets(task, predictions, references, probabilities)
    return {
        name: float(
            _LIKELY[name](task, _needed(task, probabilities), references)
            if name in _LIKELY
            else _CLASSES[name](task, predictions, references)
        )
        for name in task.metrics
    }


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


def _over_classes(average: str) -> Callable[[Task, Sequence[str], Sequence[str]], float]:
    def scored(_: Task, predictions: Sequence[str], references: Sequence[str]) -> float:
        return float(metrics.f1_score(references, predictions, average=average, zero_division=0))

    return scored


def _balanced_accuracy(_: Task, predictions: Sequence[str], references: Sequence[str]) -> float:
    """Mean recall of the classes that there are; those that are only said count for nothing."""
    labels = sorted(set(references))
    return float(
        metrics.recall_score(
            references, predictions, labels=labels, average="macro", zero_division=0
        )
    )


def _needed(
    task: Task, probabilities: Sequence[Mapping[str, float]] | None
) -> Sequence[Mapping[str, float]]:
    if probabilities is None:
        raise ValueError(f"the metrics of {task.name} need the probabilities of its classes")
    return probabilities


def _auc(
    task: Task, probabilities: Sequence[Mapping[str, float]], references: Sequence[str]
) -> float:
    """Area under the receiver's curve; 0.5 where no example is of a class, or all of it are."""
    labels = list(probabilities[0])
    positive = labels[1:] if len(labels) == 2 else labels
    areas = []
    for label in positive:
        right = np.array([reference == label for reference in references])
        shares = np.array([one[label] for one in probabilities])
        if right.any() and not right.all():
            areas.append(float(metrics.roc_auc_score(right, shares)))
    return float(np.mean(areas)) if areas else 0.5


def _ece(
    task: Task, probabilities: Sequence[Mapping[str, float]], references: Sequence[str]
) -> float:
    """Expected calibration error: Σ_b (n_b / n) · |accuracy_b − confidence_b|."""
    best = [max(one, key=lambda label: one[label]) for one in probabilities]
    sure = np.array([one[label] for one, label in zip(probabilities, best, strict=True)])
    right = np.array([b == r for b, r in zip(best, references, strict=True)], np.float64)
    # Bins are open below and closed above, as the paper's are; what is 1 but for a rounding is 1.
    bins = np.searchsorted(np.arange(1, BINS) / BINS, sure, side="left")
    gaps = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(sure))


BINS = 15
"""Of probabilities, as in Guo et al. 2017."""
_LIKELY: Mapping[str, Callable[[Task, Sequence[Mapping[str, float]], Sequence[str]], float]] = {
    "auc": _auc,
    "ece": _ece,
}
_CLASSES: Mapping[str, Callable[[Task, Sequence[str], Sequence[str]], float]] = {
    "balanced_accuracy": _balanced_accuracy,
    "f1_macro": _over_classes("macro"),
    "f1_micro": _over_classes("micro"),
    "f1_weighted": _over_classes("weighted"),
    "accuracy": _accuracy,
    "f1": _averaged(metrics.f1_score),
    "matthews": _matthews,
    "precision": _averaged(metrics.precision_score),
    "recall": _averaged(metrics.recall_score),
}


Sets = Sequence[Collection[str]]


def _score_sets(
    task: Task,
    predictions: Sets,
    references: Sets,
    probabilities: Sequence[Mapping[str, float]] | None,
) -> dict[str, float]:
    """Score sets of classes."""
    return {
        name: _auc_of_sets(_needed(task, probabilities), references)
        if name == "auc"
        else tally(name, predictions, references, sets=True).value  # scikit-learn: not of one class
        for name in task.metrics
    }


def _auc_of_sets(probabilities: Sequence[Mapping[str, float]], references: Sets) -> float:
    """Mean over the classes that some examples have and others have not; 0.5 without any."""
    areas = []
    for label in probabilities[0]:
        right = np.array([label in one for one in references])
        if right.any() and not right.all():
            shares = np.array([one[label] for one in probabilities])
            areas.append(float(metrics.roc_auc_score(right, shares)))
    return float(np.mean(areas)) if areas else 0.5


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
        else float(_span_score(name, wanted, predicted))
        for name in task.metrics
    }


def _span_score(name: str, wanted: list[list[str]], predicted: list[list[str]]) -> float:
    measure, _, average = name.partition("_")
    value: float = _SPANS[measure](wanted, predicted, average=average or "micro", zero_division=0)
    return value


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
    with warnings.catch_warnings():
        # Nearly constant predictions are what an untrained model makes.
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return {name: _NUMBERS[name](predicted, wanted) for name in task.metrics}


def _correlated(
    measure: Callable[..., Any],
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], float]:
    def scored(predicted: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
        constant = np.ptp(predicted) == 0 or np.ptp(wanted) == 0
        return 0.0 if constant else float(measure(predicted, wanted)[0])

    return scored


def _explained(predicted: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)²; 0 where all are alike, unless they are met: then 1."""
    if np.ptp(wanted) == 0:  # their mean may be off by a rounding, which must not be divided by
        return float((predicted == wanted).all())
    return float(metrics.r2_score(wanted, predicted))


_NUMBERS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "mae": lambda predicted, wanted: float(np.abs(predicted - wanted).mean()),
    "mse": lambda predicted, wanted: float(((predicted - wanted) ** 2).mean()),
    "pearson": _correlated(stats.pearsonr),
    "r2": _explained,
    "rmse": lambda predicted, wanted: float(((predicted - wanted) ** 2).mean() ** 0.5),
    "spearman": _correlated(stats.spearmanr),
}

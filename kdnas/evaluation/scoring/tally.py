"""Scores as functions of sums over examples, so that examples can be drawn anew many times.

Each example adds a row of numbers, a score follows from their sums: accuracy is a mean, Pearson's
correlation takes sums of products, Matthews' and the F1 of classes take how often each class was
said, was right, and was both, the F1 of spans the same of spans. To score a drawn set of examples
is to weigh the rows by how often each was drawn. On all examples each score is the one that
:mod:`kdnas.evaluation.scoring.metrics` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kdnas.evaluation.tasks.task import RANKED

Floats = NDArray[np.float64]
_ROUNDING = 1e-12
Tags = Sequence[Sequence[str]]
Sets = Sequence[Collection[str]]


@dataclass(frozen=True, slots=True)
class Tally:
    """What N examples add to a model's score.

    Attributes:
        parts: what each example adds to the sums, (N, S).
        measure: sums, (…, S), to scores, (…).
    """

    parts: Floats
    measure: Callable[[Floats], Floats]

    @property
    def value(self) -> float:
        """The score on all examples."""
        return float(self.measure(self.parts.sum(0)))


def tally(
    metric: str,
    predictions: Sequence[Any],
    references: Sequence[Any],
    positive: str | None = None,
    *,
    sets: bool = False,
) -> Tally:
    """Take a metric apart.

    Args:
        metric: key of ``METRIC_NAMES``.
        predictions: class names, numbers, or sequences of tags.
        references: what is right, as many and of the same type.
        positive: the class whose F1, precision or recall is meant; None for their mean.
        sets: answers are collections of classes, and no sequences of tags.

    Raises:
        KeyError: a metric that is not a function of sums over such answers.
    """
    if sets:
        return _of_sets(metric, predictions, references)
    if not isinstance(references[0], str | float | int):
        return _TAGS[metric](predictions, references)
    if metric == "accuracy":
        return mean_of([p == r for p, r in zip(predictions, references, strict=True)])
    if metric in _NUMBERS:
        return _NUMBERS[metric](predictions, references)
    return _of_classes(_CLASSES[metric], predictions, references, positive)


def mean_of(scores: ArrayLike) -> Tally:
    """A score that is the mean over the examples.

    Raises:
        ValueError: not one number an example, or no examples.
    """
    column = np.asarray(scores, np.float64)
    if column.ndim != 1 or not column.size:
        raise ValueError(f"scores of shape {column.shape} are not one for each example")
    return Tally(np.stack([column, np.ones_like(column)], 1), lambda s: s[..., 0] / s[..., 1])


def average(runs: Sequence[Tally]) -> Tally:
    """The mean score of several models, or of one with several seeds, on the same examples."""
    ends = np.cumsum([run.parts.shape[1] for run in runs])[:-1]

    def measure(sums: Floats) -> Floats:
        each = zip(runs, np.split(sums, ends, axis=-1), strict=True)
        return np.asarray(np.mean([run.measure(part) for run, part in each], axis=0))

    return Tally(np.concatenate([run.parts for run in runs], 1), measure)


def _pearson(predictions: Sequence[float], references: Sequence[float]) -> Tally:
    # Centred, lest the differences of large sums lose their digits.
    x, y = (_centred(values) for values in (predictions, references))
    return Tally(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1), _correlation)


def _centred(values: Sequence[float]) -> Floats:
    column = np.asarray(values, np.float64)
    return np.asarray(column - column.mean())


def _spearman(predictions: Sequence[float], references: Sequence[float]) -> Tally:
    """The correlation of ranks among all examples: a draw keeps them, and is not ranked anew."""
    from scipy.stats import rankdata  # takes half a second to load

    return _pearson(rankdata(predictions), rankdata(references))


def _correlation(sums: Floats) -> Floats:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    varying = (xx - x * x / n, yy - y * y / n)
    # What is constant but for rounding goes with nothing.
    varies = (varying[0] > _ROUNDING * xx) & (varying[1] > _ROUNDING * yy)
    spread = np.sqrt(np.where(varies, varying[0] * varying[1], 1.0))
    return np.where(varies, (xy - x * y / n) / spread, 0.0)


def _explained(predictions: Sequence[float], references: Sequence[float]) -> Tally:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)²; where all are alike 1 if they are met, else 0."""
    wanted = np.asarray(references, np.float64)
    y, missed = _centred(references), np.asarray(predictions, np.float64) - wanted

    def measure(sums: Floats) -> Floats:
        n, total, squares, errors = np.moveaxis(sums, -1, 0)
        spread = squares - total * total / n
        varies = spread > _ROUNDING * squares
        explained = 1 - errors / np.where(varies, spread, 1.0)
        return np.asarray(np.where(varies, explained, errors == 0), np.float64)

    return Tally(np.stack([np.ones_like(y), y, y * y, missed * missed], 1), measure)


_NUMBERS: Mapping[str, Callable[[Sequence[float], Sequence[float]], Tally]] = {
    "r2": _explained,
    "pearson": _pearson,
    "spearman": _spearman,
}


@dataclass(frozen=True, slots=True)
class _Counts:
    """How often each class, (…, C), was both said and right, was said, was right."""

    both: Floats
    said: Floats
    right: Floats


def _of_classes(
    measure: Callable[[_Counts, int | None], Floats],
    predictions: Sequence[str],
    references: Sequence[str],
    positive: str | None,
) -> Tally:
    labels = sorted({*predictions, *references, *([] if positive is None else [positive])})
    said, right = (
        np.array([[value == label for label in labels] for value in values], np.float64)
        for values in (predictions, references)
    )
    place = None if positive is None else labels.index(positive)
    parts = np.concatenate([said * right, said, right], 1)
    return Tally(parts, lambda sums: measure(_Counts(*np.split(sums, 3, axis=-1)), place))


def _of_sets(metric: str, predictions: Sets, references: Sets) -> Tally:
    """Sets of classes."""
    pairs = [(set(p), set(r)) for p, r in zip(predictions, references, strict=True)]
    if metric == "subset_accuracy":
        return mean_of([said == right for said, right in pairs])
    if metric == "f1_samples":
        return mean_of([2 * len(s & r) / (len(s) + len(r)) if s or r else 1.0 for s, r in pairs])
    measure = _CLASSES[metric]
    labels = sorted({label for pair in pairs for one in pair for label in one})
    rows = [
        [label in one for one in (said & right, said, right) for label in labels]
        for said, right in pairs
    ]
    parts = np.array(rows, np.float64).reshape(len(rows), 3 * len(labels))
    return Tally(parts, lambda sums: measure(_Counts(*np.split(sums, 3, axis=-1)), None))


def _matthews(counts: _Counts, _: int | None) -> Floats:
    """R_K of Gorodkin 2004; 0 where one side is constant."""
    n = counts.said.sum(-1)
    above = counts.both.sum(-1) * n - (counts.said * counts.right).sum(-1)
    said, right = (n * n - (one * one).sum(-1) for one in (counts.said, counts.right))
    return _ratio(above, np.sqrt(said * right))


def _precision(counts: _Counts, positive: int | None) -> Floats:
    return _over_classes(_ratio(counts.both, counts.said), counts, positive)


def _recall(counts: _Counts, positive: int | None) -> Floats:
    return _over_classes(_ratio(counts.both, counts.right), counts, positive)


def _f1(counts: _Counts, positive: int | None) -> Floats:
    return _over_classes(_ratio(2 * counts.both, counts.said + counts.right), counts, positive)


def _over_classes(values: Floats, counts: _Counts, positive: int | None) -> Floats:
    """One class, or the mean over those that were said or right."""
    if positive is not None:
        return np.asarray(values[..., positive])
    there = counts.said + counts.right > 0
    return _ratio((values * there).sum(-1), there.sum(-1))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)


def _macro(counts: _Counts, _: int | None) -> Floats:
    return _f1(counts, None)


def _micro(counts: _Counts, _: int | None) -> Floats:
    """Of one class each example it is the accuracy."""
    return _ratio(2 * counts.both.sum(-1), (counts.said + counts.right).sum(-1))


def _weighted(counts: _Counts, _: int | None) -> Floats:
    values = _ratio(2 * counts.both, counts.said + counts.right)
    return _ratio((values * counts.right).sum(-1), counts.right.sum(-1))


def _balanced(counts: _Counts, _: int | None) -> Floats:
    there = counts.right > 0
    return _ratio((_ratio(counts.both, counts.right) * there).sum(-1), there.sum(-1))


_CLASSES: Mapping[str, Callable[[_Counts, int | None], Floats]] = {
    "balanced_accuracy": _balanced,
    "f1_macro": _macro,
    "f1_micro": _micro,
    "f1_weighted": _weighted,
    "matthews": _matthews,
    "f1": _f1,
    "precision": _precision,
    "recall": _recall,
}


def _words(predictions: Tags, references: Tags) -> Tally:
    """Accuracy of words."""
    pairs = zip(predictions, references, strict=True)
    rows = [
        [sum(p == r for p, r in zip(said, right, strict=True)), len(right)] for said, right in pairs
    ]
    return Tally(np.array(rows, np.float64), lambda s: _ratio(s[..., 0], s[..., 1]))


def _of_spans(
    measure: Callable[[_Counts, int | None], Floats],
) -> Callable[[Tags, Tags], Tally]:
    """Spans of all types together, as the only class there is."""

    def taken_apart(predictions: Tags, references: Tags) -> Tally:
        from seqeval.metrics.sequence_labeling import get_entities

        rows = []
        for predicted, wanted in zip(predictions, references, strict=True):
            said, right = (set(get_entities(list(tags))) for tags in (predicted, wanted))
            rows.append([len(said & right), len(said), len(right)])
        return Tally(
            np.array(rows, np.float64),
            lambda sums: measure(_Counts(*np.split(sums, 3, axis=-1)), 0),
        )

    return taken_apart


def _of_types(
    measure: Callable[[_Counts, int | None], Floats],
) -> Callable[[Tags, Tags], Tally]:
    """Spans by their types, each of which is a class."""

    def taken_apart(predictions: Tags, references: Tags) -> Tally:
        from seqeval.metrics.sequence_labeling import get_entities

        spans = [
            [set(get_entities(list(tags))) for tags in pair]
            for pair in zip(predictions, references, strict=True)
        ]
        types = sorted({span[0] for pair in spans for tags in pair for span in tags})
        rows = [
            [
                sum(span[0] == kind for span in found)
                for found in (said & right, said, right)
                for kind in types
            ]
            for said, right in spans
        ]
        parts = np.array(rows, np.float64).reshape(len(rows), 3 * len(types))
        return Tally(parts, lambda sums: measure(_Counts(*np.split(sums, 3, axis=-1)), None))

    return taken_apart


_TAGS: Mapping[str, Callable[[Tags, Tags], Tally]] = {
    "accuracy": _words,
    "f1_macro": _of_types(_macro),
    "f1_weighted": _of_types(_weighted),
    "f1": _of_spans(_f1),
    "precision": _of_spans(_precision),
    "recall": _of_spans(_recall),
}

SUMMED = frozenset(
    {"accuracy", "exact_match", "f1_samples", "subset_accuracy", *_NUMBERS, *_CLASSES, *RANKED}
)
"""Metrics that are functions of sums over examples; AUC and errors of calibration are not."""

"""Figures over the seeds: medians with intervals, and whether a difference is one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import wilcoxon

RESAMPLES: Final = 10_000
LEVEL: Final = 0.95


class Interval(NamedTuple):
    """A median over seeds with its interval; infinite where so many never came there."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """The median with its percentile bootstrap interval, drawn with a fixed seed.

    Of an even number of values it is the mean of the two in the middle, so that it is infinite
    where one of these never came there.
    """
    given = np.asarray(values, np.float64)
    return Interval(float(np.median(given)), *_ends(np.median(given[_drawn(len(given))], axis=1)))


def ratio_interval(values: Sequence[float], reference: Sequence[float]) -> Interval:
    """The ratio of two medians over the same seeds with its interval: seeds are drawn in pairs.

    It is infinite where the values alone never came there, and 1 where neither did: neither took
    more than the other.
    """
    pairs = np.asarray([values, reference], np.float64)
    over, under = np.median(pairs[:, _drawn(len(values))], axis=2)
    return Interval(float(_ratio(*np.median(pairs, axis=1))), *_ends(_ratio(over, under)))


def _drawn(count: int) -> NDArray[np.int64]:
    """Which seeds each resample has."""
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def _ends(resampled: NDArray[np.float64]) -> tuple[float, float]:
    """Between which most resamples lie."""
    ordered = np.sort(resampled)
    low, high = (
        float(ordered[math.floor(share * (RESAMPLES - 1))])
        for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    return low, high


def _ratio(over: ArrayLike, under: ArrayLike) -> NDArray[np.float64]:
    neither = np.isinf(over) & np.isinf(under)
    return np.divide(np.where(neither, 1, over), np.where(neither, 1, under))


def paired_tests(values: Mapping[str, Sequence[float]], reference: str) -> dict[str, float]:
    """Whether strategies differ from one, seed by seed: Wilcoxon's test, corrected by Holm.

    Args:
        values: strategy → one value a seed, in the same order.
        reference: the strategy that all others are compared with.

    Returns:
        Strategy → corrected p; 1 where all seeds are equal, and where neither differs between
        seeds: the same pair over and over is one observation.
    """
    own = np.asarray(values[reference])
    raw = {}
    for name, others in values.items():
        if name == reference:
            continue
        difference = np.asarray(others) - own
        varies = np.ptp(own) > 0 or np.ptp(others) > 0
        raw[name] = float(wilcoxon(difference).pvalue) if varies and np.any(difference) else 1.0
    corrected, largest = {}, 0.0
    for rank, (name, p) in enumerate(sorted(raw.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(raw) - rank)))
        corrected[name] = largest
    return corrected

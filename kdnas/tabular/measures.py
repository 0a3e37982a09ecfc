"""Figures over the seeds: medians with intervals, and whether a difference is one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
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
    rng = np.random.default_rng(0)
    drawn = given[rng.integers(len(given), size=(RESAMPLES, len(given)))]
    medians = np.sort(np.median(drawn, axis=1))
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = (medians[math.floor(share * (RESAMPLES - 1))] for share in ends)
    return Interval(float(np.median(given)), float(low), float(high))


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

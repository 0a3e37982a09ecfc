"""How good replays are: regret, trainings to the goal, and whether a difference is one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.stats import wilcoxon

from kdnas.tabular.replay import Replay

SOLVED_SHARE: Final = 0.005
"""A search has solved its problem with a state of the best so many of those that it may take."""
RESAMPLES: Final = 10_000
LEVEL: Final = 0.95


class Interval(NamedTuple):
    """A median over seeds with its interval; infinite where so many never came there."""

    median: float
    low: float
    high: float


def regret(replay: Replay, truth: Sequence[float], allowed: Collection[int], budget: int) -> float:
    """How much better the best state is than the one that the search would recommend by then.

    It recommends what it was told the highest reward of, noise included; truth tells what that one
    is worth.
    """
    seen = range(min(budget, len(replay.order)))
    chosen = max(seen, key=lambda i: (replay.rewards[i], -i))
    return max(truth[i] for i in allowed) - truth[replay.order[chosen]]


def goal_states(truth: Sequence[float], allowed: Collection[int]) -> frozenset[int]:
    """The best states of those that may be taken, :data:`SOLVED_SHARE` of them and at least one."""
    count = max(1, math.floor(SOLVED_SHARE * len(allowed)))
    return frozenset(sorted(allowed, key=lambda i: (-truth[i], i))[:count])


def trainings_to(replay: Replay, goal: Collection[int]) -> float:
    """Trainings until the first state of the goal; infinite if it was never proposed."""
    return next((n for n, index in enumerate(replay.order, 1) if index in goal), math.inf)


def median_interval(values: Sequence[float]) -> Interval:
    """The median with its percentile bootstrap interval, drawn with a fixed seed."""
    given = np.asarray(values, np.float64)
    rng = np.random.default_rng(0)
    drawn = given[rng.integers(len(given), size=(RESAMPLES, len(given)))]
    medians = np.sort(np.quantile(drawn, 0.5, axis=1, method="inverted_cdf"))
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = (medians[math.floor(share * (RESAMPLES - 1))] for share in ends)
    middle = np.quantile(given, 0.5, method="inverted_cdf")
    return Interval(float(middle), float(low), float(high))


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

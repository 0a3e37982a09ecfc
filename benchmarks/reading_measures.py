"""How well one order of states agrees with another, over all of them and where latency is alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap, rankdata

Measure = Literal["spearman", "kendall"]
Groups = Sequence[NDArray[np.intp]]
"""Places of states, which are compared with those of their group alone."""

RESAMPLES: Final = 2000
LEAST: Final = 8
"""States of a group: fewer say nothing of a rank correlation."""
MOST_GROUPS: Final = 5
_BATCH: Final = 10
"""Draws at a time: Kendall's τ looks at all pairs of states of each."""


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


def alike(values: Sequence[float]) -> Groups:
    """Cut states into groups of like value, rising: fifths, or fewer where fifths would be small.

    Returns:
        Groups of the same size but for one state; none where there is not enough for two.
    """
    count = min(MOST_GROUPS, len(values) // LEAST)
    return [] if count < 2 else np.array_split(np.argsort(values, kind="stable"), count)


def agreement(
    early: Sequence[float], late: Sequence[float], groups: Groups, measure: Measure
) -> Interval | None:
    """The mean rank correlation of the groups, with its percentile bootstrap over their states.

    Args:
        early: what ranks the states.
        late: what they should be ranked by.
        groups: at least one, each of at least two states.
        measure: Spearman's ρ or Kendall's τ-b.

    Returns:
        None where one of the two is the same for all states of each group, so that there is nothing
        to rank; where it is so in one group, this one counts as 0.
    """
    pair = np.asarray(early, np.float64), np.asarray(late, np.float64)
    if not any(all(np.ptp(values[own]) > 0 for values in pair) for own in groups):
        return None

    def over(*places: NDArray[np.intp], axis: int = -1) -> NDArray[np.float64]:
        return np.mean([_correlation(*(v[own] for v in pair), measure) for own in places], axis=0)

    drawn = bootstrap(
        tuple(groups),
        over,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = drawn.confidence_interval
    return Interval(float(over(*groups)), float(low), float(high))


def _correlation(
    left: NDArray[np.float64], right: NDArray[np.float64], measure: Measure
) -> NDArray[np.float64]:
    """Rank correlations along the last axis: SciPy's own take one pair of samples at a time."""
    if measure == "spearman":
        ranks = [rankdata(values, axis=-1) for values in (left, right)]
        one, other = (own - own.mean(-1, keepdims=True) for own in ranks)
    else:
        one, other = _signs(left), _signs(right)
    scale = np.sqrt(np.square(one).sum(-1) * np.square(other).sum(-1))
    return np.divide((one * other).sum(-1), scale, out=np.zeros_like(scale), where=scale > 0)


def _signs(values: NDArray[np.float64]) -> NDArray[np.int8]:
    """Of every pair of states, which one is higher: (…, n) → (…, n²)."""
    one, other = values[..., :, None], values[..., None, :]
    signs = (one > other).astype(np.int8) - (one < other)
    return signs.reshape(*values.shape[:-1], -1)


def num_best(states: int, percent: int) -> int:
    """How many of so many states are the best so many per cent: at least one."""
    return -(-states * percent // 100)


def kept(
    early: Sequence[float], late: Sequence[float], groups: Groups, best: int, within: int
) -> float:
    """Share of each group's best by ``late`` that are among its best by ``early``.

    That is what remains of the best states where halving goes on with so many. Where values are the
    same, it is what is kept on average over the ways to put these in order.

    Args:
        early: the lower, the better.
        late: the lower, the better.
        groups: at least one.
        best: per cent.
        within: per cent.
    """
    first, last = np.asarray(early, np.float64), np.asarray(late, np.float64)
    found = wanted = 0.0
    for own in groups:
        top = _among_best(last[own], best)
        found += float((top * _among_best(first[own], within)).sum())
        wanted += float(top.sum())
    return found / wanted


def _among_best(values: ArrayLike, percent: int) -> NDArray[np.float64]:
    """How surely each is among the lowest so many per cent: 1, 0, or between them in a tie."""
    own = np.asarray(values, np.float64)
    lower = (own[None, :] < own[:, None]).sum(1)
    same = (own[None, :] == own[:, None]).sum(1)
    return np.clip((num_best(len(own), percent) - lower) / same, 0, 1)

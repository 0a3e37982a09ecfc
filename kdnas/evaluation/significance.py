"""Whether one model is better than another, or was only lucky with the examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES = 10_000
_DRAWS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much better a model is than another on the same examples.

    Attributes:
        difference: mean score of the first less that of the second.
        low: lower end of the 95 % interval.
        high: upper end of it.
        p_value: two-sided: how likely a difference of the other sign, or none, is.
        examples: how many were compared.
    """

    difference: float
    low: float
    high: float
    p_value: float
    examples: int


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, samples: int = SAMPLES, seed: int = 0
) -> Comparison:
    """Compare the scores of two models on the same examples by resampling the examples.

    The paired bootstrap test of Koehn 2004, §3, two-sided; the interval is the percentile one of
    Efron. Examples that both models score alike weigh in as well. Examples with equal differences
    are drawn together, as a multinomial count, which gives the same distribution at less work.

    Args:
        first: score of each example, (N,).
        second: those of the other model, (N,), in the same order.
        samples: how often N examples are drawn with replacement.
        seed: of the draws.

    Raises:
        ValueError: not equally many scores, or none.
    """
    scores = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    if scores[0].shape != scores[1].shape or scores[0].ndim != 1 or not scores[0].size:
        raise ValueError(f"scores of shapes {scores[0].shape} and {scores[1].shape} make no pairs")
    values, counts = np.unique(scores[0] - scores[1], return_counts=True)
    size = int(counts.sum())
    means = _resampled_means(values, counts, samples, seed)
    low, high = np.quantile(means, (0.025, 0.975))
    one_sided = min((means <= 0).sum(), (means >= 0).sum())
    return Comparison(
        difference=float(values @ counts) / size,
        low=float(low),
        high=float(high),
        p_value=min(1.0, 2 * (int(one_sided) + 1) / (samples + 1)),
        examples=size,
    )


def resampled_scores(
    pairs: Sequence[tuple[ArrayLike, ArrayLike]], *, samples: int = SAMPLES, seed: int = 0
) -> NDArray[np.float64]:
    """Draw the examples of several tasks anew, again and again, and score two models on them.

    Args:
        pairs: for each task the scores of both models, (N,) each, with examples in the same order;
            N may differ between the tasks.
        samples: how often the examples are drawn with replacement.
        seed: of the draws.

    Returns:
        The mean over the tasks of each model's mean score in each draw, (samples, 2).

    Raises:
        ValueError: there are no pairs.
    """
    if not pairs:
        raise ValueError("there are no tasks to draw examples of")
    total = np.zeros((samples, 2))
    for number, pair in enumerate(pairs):
        scores = np.stack([np.asarray(one, dtype=np.float64) for one in pair], axis=1)
        values, counts = np.unique(scores, axis=0, return_counts=True)
        total += _resampled_means(values, counts, samples, seed + number)
    return total / len(pairs)


def _resampled_means(
    values: NDArray[np.float64], counts: NDArray[np.int64], samples: int, seed: int
) -> NDArray[np.float64]:
    """Mean of each draw, (samples,) or (samples, M), of K values, (K,) or (K, M)."""
    generator = np.random.default_rng(seed)
    size = int(counts.sum())
    at_once = max(1, _DRAWS_AT_ONCE // len(values))
    parts = [
        generator.multinomial(size, counts / size, min(at_once, samples - start)) @ values / size
        for start in range(0, samples, at_once)
    ]
    return np.concatenate(parts)

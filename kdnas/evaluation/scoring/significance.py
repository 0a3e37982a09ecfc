"""Whether one model is better than another, or was only lucky with the examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kdnas.evaluation.scoring.tally import Floats, Tally

MOST_SAMPLES, FEWEST_SAMPLES = 10_000, 1_000
_COUNTS_AT_ONCE = 4_000_000

Pair = tuple[Tally, Tally]
"""Two models on the same examples."""

ENDS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much better a model is than another on the same examples.

    Attributes:
        difference: score of the first less that of the second.
        low: lower end of the 95 % interval.
        high: upper end of it.
        p_value: two-sided: how likely a difference of the other sign, or none, is.
        examples: how many were compared.
        metric: key of ``METRIC_NAMES``; None where what each example scored is averaged.
    """

    difference: float
    low: float
    high: float
    p_value: float
    examples: int
    metric: str | None = None


def paired_bootstrap(
    sets: Sequence[Pair], *, metric: str | None = None, samples: int | None = None, seed: int = 0
) -> Comparison:
    """Compare the scores of two models on the same examples by resampling the examples.

    The paired bootstrap test of Koehn 2004, §3, two-sided; the interval is the percentile one of
    Efron. Examples that both models score alike weigh in as well.

    Args:
        sets: both models on each evaluation set; the score is the mean over the sets.
        metric: what is compared, for those who read it.
        samples: how often the examples are drawn; None is :func:`num_samples`.
        seed: of the draws.

    Raises:
        ValueError: there are no sets, or the models do not share their examples.
    """
    draws = resampled_scores([sets], samples=samples, seed=seed)
    differences = draws[:, 0] - draws[:, 1]
    low, high = np.quantile(differences, ENDS)
    one_sided = min((differences <= 0).sum(), (differences >= 0).sum())
    return Comparison(
        difference=float(np.mean([first.value - second.value for first, second in sets])),
        low=float(low),
        high=float(high),
        p_value=min(1.0, 2 * (int(one_sided) + 1) / (len(draws) + 1)),
        examples=sum(len(first.parts) for first, _ in sets),
        metric=metric,
    )


def resampled_scores(
    tasks: Sequence[Sequence[Pair]], *, samples: int | None = None, seed: int = 0
) -> Floats:
    """Draw the examples of several tasks anew, again and again, and score two models on them.

    Args:
        tasks: both models on each evaluation set of each task; sets have examples of their own.
        samples: how often the examples are drawn with replacement; None is :func:`num_samples`.
        seed: of the draws.

    Returns:
        Each model's mean over the tasks of its mean over a task's sets, in each draw, (samples, 2).

    Raises:
        ValueError: there are no tasks or sets, or the models do not share their examples.
    """
    if not tasks or not all(tasks):
        raise ValueError("there are no tasks to draw examples of")
    # Examples that add the same are drawn together, as a multinomial count: the same distribution.
    rows = [[_distinct(pair) for pair in sets] for sets in tasks]
    if samples is None:
        samples = num_samples(max(len(counts) for sets in rows for _, counts in sets))
    total = np.zeros((samples, 2))
    number = 0
    for sets, distinct in zip(tasks, rows, strict=True):
        for pair, (parts, counts) in zip(sets, distinct, strict=True):
            generator = np.random.default_rng(seed + number)
            total += _drawn(pair, parts, counts, samples, generator) / len(sets)
            number += 1
    return total / len(tasks)


def num_samples(distinct: int) -> int:
    """How many draws are made of so many distinct examples: fewer, where there are many."""
    return min(MOST_SAMPLES, max(FEWEST_SAMPLES, _COUNTS_AT_ONCE // distinct))


def _distinct(pair: Pair) -> tuple[Floats, NDArray[np.int64]]:
    """The distinct rows that examples add to both models' sums, (K, S₁ + S₂), and how many do."""
    first, second = pair
    if len(first.parts) != len(second.parts):
        raise ValueError(f"{len(first.parts)} and {len(second.parts)} examples make no pairs")
    return np.unique(np.concatenate([first.parts, second.parts], 1), axis=0, return_counts=True)


def _drawn(
    pair: Pair,
    parts: Floats,
    counts: NDArray[np.int64],
    samples: int,
    generator: np.random.Generator,
) -> Floats:
    """Scores of both models in each draw, (samples, 2)."""
    size = int(counts.sum())
    at_once = max(1, _COUNTS_AT_ONCE // len(counts))
    width = pair[0].parts.shape[1]
    found = []
    for start in range(0, samples, at_once):
        often = generator.multinomial(size, counts / size, min(at_once, samples - start))
        sums = often @ parts
        scores = [pair[0].measure(sums[:, :width]), pair[1].measure(sums[:, width:])]
        found.append(np.stack(scores, 1))
    return np.concatenate(found)

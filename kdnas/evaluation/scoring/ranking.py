"""Scores of a retrieval: which of the passages that a ranking begins with answer the query.

They are those of trec_eval, as BEIR reports them (Thakur et al. 2021): a passage with a grade above
0 is relevant, a ranking counts down to a cutoff k, and a score is the mean over the queries. What
is found beyond k, or judged and not found, is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import log2
from statistics import fmean
from typing import Final

from kdnas.evaluation.tasks.examples import RetrievalExample

Grades = Mapping[str, float]


def cutoff_of(metric: str) -> int:
    """Down to which rank a metric looks: 10 of ``ndcg_at_10``."""
    return int(metric.rpartition("_")[2])


def score_ranking(metric: str, ranking: Sequence[str], grades: Grades) -> float:
    """Score what was found for one query.

    Args:
        metric: such as ``recall_at_10``; its ranking goes as far as that, unless there are fewer
            passages.
        ranking: names of passages, the best first, none twice.
        grades: passage → how well it answers, above 0; there is at least one.
    """
    name, _, k = metric.partition("_at_")
    gains = [grades.get(passage, 0.0) for passage in ranking[: int(k)]]
    return _MEASURES[name](gains, grades, int(k))


def score_retrieval(
    metrics: Sequence[str],
    rankings: Sequence[Sequence[str]],
    examples: Sequence[RetrievalExample],
) -> dict[str, float]:
    """Score what was found for Q queries, in their order, with each metric.

    Raises:
        ValueError: not as many rankings as queries, or none at all.
    """
    if len(rankings) != len(examples) or not examples:
        raise ValueError(f"{len(rankings)} rankings for {len(examples)} queries")
    return {
        metric: fmean(
            score_ranking(metric, ranking, example.grades)
            for ranking, example in zip(rankings, examples, strict=True)
        )
        for metric in metrics
    }


def _recall(gains: Sequence[float], grades: Grades, k: int) -> float:
    return sum(gain > 0 for gain in gains) / len(grades)


def _precision(gains: Sequence[float], grades: Grades, k: int) -> float:
    return sum(gain > 0 for gain in gains) / k


def _reciprocal_rank(gains: Sequence[float], grades: Grades, k: int) -> float:
    return next((1 / rank for rank, gain in enumerate(gains, 1) if gain > 0), 0.0)


def _average_precision(gains: Sequence[float], grades: Grades, k: int) -> float:
    """Precision at each relevant passage, over all relevant ones."""
    found = accumulate(gain > 0 for gain in gains)
    ranked = enumerate(zip(found, gains, strict=True), 1)
    return sum(so_far / rank for rank, (so_far, gain) in ranked if gain > 0) / len(grades)


def _ndcg(gains: Sequence[float], grades: Grades, k: int) -> float:
    """Σ grade / log₂(1 + rank), over that of the best ranking (Järvelin and Kekäläinen 2002)."""
    best = sorted(grades.values(), reverse=True)[:k]
    return _discounted(gains) / _discounted(best)


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / log2(1 + rank) for rank, gain in enumerate(gains, 1))


_MEASURES: Final[Mapping[str, Callable[[Sequence[float], Grades, int], float]]] = {
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    "ndcg": _ndcg,
    "precision": _precision,
    "recall": _recall,
}

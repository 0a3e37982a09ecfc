"""Scores of rankings against scikit-learn's, and against what their definitions say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from kdnas.evaluation.results import Prediction
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.scoring.ranking import cutoff_of, score_ranking, score_retrieval
from kdnas.evaluation.scoring.tally import SUMMED
from kdnas.evaluation.tasks.examples import RetrievalExample
from kdnas.evaluation.tasks.task import CUTOFFS, RANKED, own_task

PASSAGES = [f"p{n}" for n in range(30)]
RANKINGS = st.permutations(PASSAGES)
GRADES = st.dictionaries(st.sampled_from(PASSAGES), st.integers(1, 4), min_size=1, max_size=12)


def gains(ranking: list[str], grades: dict[str, int]) -> Any:
    return np.array([[grades.get(name, 0) for name in ranking]], np.float64)


@given(ranking=RANKINGS, grades=GRADES, k=st.sampled_from(CUTOFFS))
def test_ndcg_is_scikit_learns(ranking: list[str], grades: dict[str, int], k: int) -> None:
    ranks = -np.arange(len(ranking), dtype=np.float64)[None]
    wanted = ndcg_score(gains(ranking, grades), ranks, k=k, ignore_ties=True)
    assert score_ranking(f"ndcg_at_{k}", ranking, grades) == pytest.approx(wanted)


@given(ranking=RANKINGS, grades=GRADES)
def test_map_of_all_is_average_precision(ranking: list[str], grades: dict[str, int]) -> None:
    wanted = average_precision_score(gains(ranking, grades)[0] > 0, -np.arange(len(ranking)))
    assert score_ranking("map_at_50", ranking, grades) == pytest.approx(wanted)


@given(ranking=RANKINGS, grades=GRADES, k=st.sampled_from(CUTOFFS))
def test_recall_precision_and_reciprocal_rank(
    ranking: list[str], grades: dict[str, int], k: int
) -> None:
    found = set(ranking[:k]) & set(grades)
    assert score_ranking(f"recall_at_{k}", ranking, grades) == len(found) / len(grades)
    assert score_ranking(f"precision_at_{k}", ranking, grades) == len(found) / k
    first = min(ranking.index(name) for name in grades)
    wanted = 1 / (first + 1) if first < k else 0.0
    assert score_ranking(f"mrr_at_{k}", ranking, grades) == wanted


def test_what_is_beyond_the_ranking_is_missed() -> None:
    grades = {"a": 1.0, "nowhere": 1.0}
    assert score_ranking("recall_at_10", ["a"], grades) == 0.5
    assert score_ranking("map_at_10", ["a"], grades) == 0.5
    assert score_ranking("ndcg_at_10", ["a"], grades) == pytest.approx(1 / (1 + 1 / np.log2(3)))


def test_a_task_is_scored_by_its_metrics_over_all_queries() -> None:
    task = own_task("faq", "retrieval", metrics=("mrr_at_10", "recall_at_1"))
    examples = [RetrievalExample(id_, id_, {"a": 1.0}) for id_ in ("1", "2")]
    rankings = [("a", "b"), ("b", "a")]
    said = [Prediction(e.id, ranking, 0.0) for e, ranking in zip(examples, rankings, strict=True)]
    wanted = {"mrr_at_10": 0.75, "recall_at_1": 0.5}
    assert (
        judge(task, said, examples) == score_retrieval(task.metrics, rankings, examples) == wanted
    )
    with pytest.raises(ValueError, match="1 rankings for 2 queries"):
        score_retrieval(task.metrics, rankings[:1], examples)


def test_every_metric_has_a_cutoff_and_can_be_drawn_anew() -> None:
    assert {cutoff_of(metric) for metric in RANKED} == set(CUTOFFS)
    assert RANKED <= SUMMED


@pytest.mark.parametrize("grades", [{}, {"a": 0.0}, {"a": -1.0, "b": 1.0}])
def test_a_query_without_an_answer_is_none(grades: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs passages with grades above 0"):
        RetrievalExample("1", "what?", grades)

"""Tallies against the metrics themselves, on all examples and on drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.scoring.tally import Tally, average, mean_of, tally
from kdnas.evaluation.tasks.task import own_task

CLASSES = (
    *("matthews", "f1", "precision", "recall", "accuracy"),
    *("f1_macro", "f1_micro", "f1_weighted", "balanced_accuracy"),
)
NUMBERS = st.floats(-5, 5).map(lambda number: round(number, 2))
SETS = st.lists(st.sampled_from("abc"), unique=True)
MEANS = ("f1_samples", "subset_accuracy")
WORDS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])


def answers(labels: Sequence[str]) -> Any:
    label = st.sampled_from(labels)
    return st.lists(st.tuples(label, label), min_size=1, max_size=30)


def drawn(made: Tally, often: Sequence[int]) -> float:
    return float(made.measure(np.asarray(often) @ made.parts))


def repeated(values: Sequence[Any], often: Sequence[int]) -> list[Any]:
    return [value for value, times in zip(values, often, strict=True) for _ in range(times)]


def check(
    metric: str,
    task: Any,
    pairs: Sequence[tuple[Any, Any]],
    positive: str | None,
    data: Any,
    *,
    sets: bool = False,
) -> None:
    said, right = (list(column) for column in zip(*pairs, strict=True))
    made = tally(metric, said, right, positive, sets=sets)
    assert made.value == pytest.approx(score(task, said, right)[metric], rel=1e-6, abs=1e-9)
    often = data.draw(
        st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)).filter(any)
    )
    again = score(task, repeated(said, often), repeated(right, often))[metric]
    assert drawn(made, often) == pytest.approx(again, rel=1e-6, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(pairs=answers("abc"), metric=st.sampled_from(CLASSES), data=st.data())
def test_classes(pairs: list[tuple[str, str]], metric: str, data: Any) -> None:
    check(metric, own_task("t", "classification", metrics=(metric,)), pairs, None, data)


@settings(max_examples=60, deadline=None)
@given(pairs=answers("ny"), metric=st.sampled_from(CLASSES), data=st.data())
def test_one_class_of_two(pairs: list[tuple[str, str]], metric: str, data: Any) -> None:
    task = own_task("t", "classification", labels=("n", "y"), metrics=(metric,))
    check(metric, task, pairs, "y", data)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(SETS, SETS), min_size=1, max_size=20),
    metric=st.sampled_from(("f1_micro", "f1_macro", "f1_weighted", *MEANS)),
    data=st.data(),
)
def test_sets_of_classes(pairs: list[tuple[list[str], list[str]]], metric: str, data: Any) -> None:
    task = own_task("t", "multilabel", metrics=(metric,))
    check(metric, task, pairs, None, data, sets=True)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30),
    metric=st.sampled_from(("pearson", "r2")),
    data=st.data(),
)
def test_numbers(pairs: list[tuple[float, float]], metric: str, data: Any) -> None:
    check(metric, own_task("t", "regression", metrics=("pearson", "r2")), pairs, None, data)


def test_ranks_are_those_of_all_examples() -> None:
    said, right = [1.0, 2.0, 5.0, 4.0], [0.1, 0.7, 0.6, 0.9]
    made = tally("spearman", said, right)
    task = own_task("t", "regression")
    assert made.value == pytest.approx(score(task, said, right)["spearman"])
    assert drawn(made, [0, 3, 3, 0]) == pytest.approx(-1)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(
        st.integers(1, 6).flatmap(
            lambda n: st.tuples(*[st.lists(WORDS, min_size=n, max_size=n)] * 2)
        ),
        min_size=1,
        max_size=8,
    ),
    metric=st.sampled_from(("f1", "precision", "recall", "accuracy", "f1_macro", "f1_weighted")),
    data=st.data(),
)
def test_tags(pairs: list[tuple[list[str], list[str]]], metric: str, data: Any) -> None:
    pairs = [*pairs, (["B-PER"], ["B-PER"])]
    said, right = (list(column) for column in zip(*pairs, strict=True))
    task = own_task("t", "tagging", metrics=(metric, "recall"))
    assert tally(metric, said, right).value == pytest.approx(score(task, said, right)[metric])
    often = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    often[-1] = 1
    again = score(task, repeated(said, often), repeated(right, often))[metric]
    assert drawn(tally(metric, said, right), often) == pytest.approx(again)


def test_constants_go_with_nothing() -> None:
    for constant in (0.1, 1e9, 0.0):
        assert tally("pearson", [constant] * 7, [1.0, 2, 3, 4, 5, 6, 7]).value == 0
    assert tally("matthews", ["a"] * 3, ["a", "b", "a"]).value == 0


def test_an_average_of_runs_is_the_average_of_their_scores() -> None:
    right = [0.0, 1.0, 2.0, 3.0]
    runs = [tally("pearson", said, right) for said in ([0.0, 1, 2, 2], [3.0, 1, 2, 0])]
    whole = average(runs)
    assert whole.value == pytest.approx(sum(run.value for run in runs) / 2)
    often = [2, 0, 1, 1]
    assert drawn(whole, often) == pytest.approx(sum(drawn(run, often) for run in runs) / 2)


@pytest.mark.parametrize("scores", [[], [[1.0]]])
def test_scores_that_are_not_one_an_example_are_refused(scores: list[Any]) -> None:
    with pytest.raises(ValueError, match="not one for each example"):
        mean_of(scores)


def test_a_metric_that_is_no_function_of_sums_is_refused() -> None:
    with pytest.raises(KeyError):
        tally("exact_match", ["a"], ["a"])

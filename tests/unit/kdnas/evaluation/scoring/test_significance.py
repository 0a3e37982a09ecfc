"""The paired bootstrap against sampling example by example, and against what must hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from kdnas.evaluation.scoring.significance import (
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    Pair,
    num_samples,
    paired_bootstrap,
    resampled_scores,
)
from kdnas.evaluation.scoring.tally import mean_of, tally

SCORES = st.lists(
    st.tuples(st.sampled_from([0.0, 1 / 3, 1.0]), st.sampled_from([0.0, 0.5, 1.0])),
    min_size=1,
    max_size=40,
)


def pair_of(first: ArrayLike, second: ArrayLike) -> Pair:
    return mean_of(first), mean_of(second)


def test_it_agrees_with_drawing_examples_one_by_one() -> None:
    generator = np.random.default_rng(1)
    first = generator.random(300) < 0.80
    second = generator.random(300) < 0.74
    drawn = generator.integers(0, 300, (20_000, 300))
    means = (first.astype(float) - second)[drawn].mean(1)
    found = paired_bootstrap([pair_of(first, second)], samples=20_000)
    low, high = np.quantile(means, (0.025, 0.975))
    assert found.difference == pytest.approx(first.mean() - second.mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)
    assert found.p_value == pytest.approx(2 * (means <= 0).mean(), abs=0.01)
    assert found.examples == 300


@settings(max_examples=40, deadline=None)
@given(pairs=SCORES)
def test_exchanging_the_models_changes_the_sign_alone(pairs: list[tuple[float, float]]) -> None:
    first, second = zip(*pairs, strict=True)
    one, other = (
        paired_bootstrap([pair_of(a, b)], samples=500)
        for a, b in ((first, second), (second, first))
    )
    assert one.difference == pytest.approx(-other.difference)
    assert one.low <= one.difference + 1e-9
    assert one.difference <= one.high + 1e-9
    assert 0 < one.p_value <= 1


def test_equal_models_do_not_differ() -> None:
    found = paired_bootstrap([pair_of([0, 1, 1], [0, 1, 1])], samples=100)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_continuous_scores_are_drawn_in_parts() -> None:
    first = np.linspace(0, 1, 5_000)
    found = paired_bootstrap([pair_of(first, np.zeros(5_000))], samples=2_000)
    assert found.low < 0.5 < found.high
    assert found.p_value < 0.01


def test_examples_that_make_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 examples make no pairs"):
        paired_bootstrap([pair_of([1, 0], [1])])


def test_of_many_distinct_examples_fewer_draws_are_made() -> None:
    assert [num_samples(n) for n in (2, 400, 1500, 10**6)] == [
        MOST_SAMPLES,
        MOST_SAMPLES,
        2666,
        FEWEST_SAMPLES,
    ]


def test_a_correlation_is_drawn_anew_as_a_whole() -> None:
    generator = np.random.default_rng(3)
    right = generator.normal(size=200)
    said = [right + generator.normal(size=200) * noise for noise in (0.5, 1.0)]
    pair = (
        tally("pearson", list(said[0]), list(right)),
        tally("pearson", list(said[1]), list(right)),
    )
    found = paired_bootstrap([pair], metric="pearson", samples=4000)
    drawn = generator.integers(0, 200, (4000, 200))
    apart = [
        np.corrcoef(said[0][d], right[d])[0, 1] - np.corrcoef(said[1][d], right[d])[0, 1]
        for d in drawn
    ]
    assert (found.low, found.high) == pytest.approx(np.quantile(apart, (0.025, 0.975)), abs=0.01)
    assert found.metric == "pearson"
    assert found.low > 0


@settings(max_examples=20, deadline=None)
@given(pairs=SCORES)
def test_one_task_drawn_anew_has_the_interval_of_the_paired_bootstrap(
    pairs: list[tuple[float, float]],
) -> None:
    first, second = zip(*pairs, strict=True)
    draws = resampled_scores([[pair_of(first, second)]], samples=4000)
    assert draws.shape == (4000, 2)
    found = paired_bootstrap([pair_of(first, second)], samples=4000)
    low, high = np.quantile(draws[:, 0] - draws[:, 1], (0.025, 0.975))
    assert (low, high) == pytest.approx((found.low, found.high), abs=0.1)


def test_each_task_counts_alike_however_many_examples_it_has() -> None:
    tasks = [[pair_of(np.ones(10), np.zeros(10))], [pair_of(np.zeros(1000), np.ones(1000))]]
    assert resampled_scores(tasks, samples=3).tolist() == [[0.5, 0.5]] * 3
    with pytest.raises(ValueError, match="no tasks"):
        resampled_scores([])


def test_each_set_of_a_task_counts_alike() -> None:
    sets = [pair_of(np.ones(10), np.zeros(10)), pair_of(np.zeros(30), np.ones(30))]
    both = resampled_scores([sets, [pair_of(np.ones(5), np.ones(5))]], samples=3)
    assert both.tolist() == [[0.75, 0.75]] * 3

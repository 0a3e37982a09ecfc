"""Measures: regret, trainings to the goal, intervals and tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from kdnas.tabular.measures import (
    goal_states,
    median_interval,
    paired_tests,
    regret,
    trainings_to,
)
from kdnas.tabular.replay import Replay

TRUTH = [0.1, 0.9, 0.5, 0.7, 1.0]
REPLAY = Replay("some", 0, (0, 2, 3, 1), (0.1, 0.8, 0.6, 0.75))
"""It was told too much of state 2, and too little of 3 and 1."""


def test_regret_is_that_of_the_state_which_it_would_recommend() -> None:
    allowed = range(4)  # 4, the best of all, may not be taken
    regrets = [regret(REPLAY, TRUTH, allowed, n) for n in (1, 2, 3, 4, 99)]
    assert regrets == pytest.approx([0.8, 0.4, 0.4, 0.4, 0.4])
    assert regret(REPLAY, TRUTH, range(5), 4) == pytest.approx(0.5)


def test_of_two_that_it_was_told_the_same_of_it_takes_the_first() -> None:
    tied = Replay("some", 0, (2, 3), (0.6, 0.6))
    assert regret(tied, TRUTH, range(4), 2) == pytest.approx(0.4)


def test_the_goal_is_the_best_half_per_cent_and_at_least_one() -> None:
    assert goal_states(TRUTH, range(5)) == {4}
    assert goal_states(TRUTH, range(4)) == {1}
    many = [i / 1000 for i in range(1000)]
    assert goal_states(many, range(1000)) == {995, 996, 997, 998, 999}
    assert goal_states(many, range(0, 1000, 2)) == {996, 998}
    assert trainings_to(REPLAY, {1, 3}) == 3
    assert trainings_to(REPLAY, {4}) == math.inf


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=25))
def test_an_interval_holds_its_median_and_lies_within_the_values(values: list[float]) -> None:
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found == median_interval(values)
    assert found.median in values


def test_those_who_never_came_there_are_infinitely_late() -> None:
    assert median_interval([20.0, math.inf, math.inf]).median == math.inf
    mostly = median_interval([20.0] * 18 + [math.inf] * 2)
    assert (mostly.low, mostly.median, mostly.high) == (20, 20, 20)


def test_tests_are_paired_and_corrected() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(0, 1, 20)
    values = {
        "own": list(own),
        "same": list(own),
        "worse": list(own + 0.1 + rng.normal(0, 0.01, 20)),
        "like": list(own + rng.normal(0, 1, 20)),
    }
    found = paired_tests(values, "own")
    assert found["same"] == 1.0
    raw = {name: float(wilcoxon(np.array(values[name]) - own).pvalue) for name in ("worse", "like")}
    assert found["worse"] == pytest.approx(min(1.0, 3 * raw["worse"]))
    assert found["worse"] < 0.001 < 0.05 < found["like"]
    assert found["like"] == pytest.approx(max(found["worse"], min(1.0, 2 * raw["like"])))
    assert paired_tests({"own": [1.0]}, "own") == {}
    assert paired_tests({"own": [1.0] * 20, "other": [2.0] * 20}, "own") == {"other": 1.0}

"""Figures over the seeds: intervals and tests."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from kdnas.tabular.measures import median_interval, paired_tests, ratio_interval


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=25))
def test_an_interval_holds_its_median_and_lies_within_the_values(values: list[float]) -> None:
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found == median_interval(values)
    assert found.median == pytest.approx(statistics.median(values))


def test_those_who_never_came_there_are_infinitely_late() -> None:
    assert median_interval([20.0, math.inf, math.inf]).median == math.inf
    assert median_interval([10.0, math.inf]).median == math.inf
    mostly = median_interval([20.0] * 18 + [math.inf] * 2)
    assert (mostly.low, mostly.median, mostly.high) == (20, 20, 20)


@given(st.lists(st.floats(1, 300), min_size=1, max_size=25), st.floats(0.1, 10))
def test_a_ratio_is_of_the_medians_and_of_the_same_seeds(values: list[float], by: float) -> None:
    found = ratio_interval([by * value for value in values], values)
    assert list(found) == pytest.approx([by] * 3)
    other = list(range(1, len(values) + 1))
    found = ratio_interval(values, other)
    assert found.low <= found.median * (1 + 1e-9)
    assert found.median <= found.high * (1 + 1e-9)
    assert found.median == pytest.approx(statistics.median(values) / statistics.median(other))


def test_a_ratio_tells_who_never_came_there() -> None:
    never, soon = [math.inf] * 3, [10.0] * 3
    assert ratio_interval(never, soon) == (math.inf, math.inf, math.inf)
    assert ratio_interval(soon, never) == (0, 0, 0)
    assert ratio_interval(never, never) == (1, 1, 1)
    part = ratio_interval([20.0, 20.0, math.inf], soon)
    assert (part.median, part.high) == (2, math.inf)


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

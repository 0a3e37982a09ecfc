"""Rank agreement and what halving keeps: known answers, and what holds for any values."""

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

VALUES = st.lists(st.integers(0, 20), min_size=8, max_size=30)


@pytest.fixture
def measures(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("reading_measures")


def all_of(values: list[float]) -> list[np.ndarray]:
    return [np.arange(len(values))]


def test_a_correlation_that_is_known(measures: ModuleType) -> None:
    early, late = [2, 1, 4, 3, 6, 5, 8, 7, 10, 9], list(range(10))
    # ρ = 1 − 6·Σd²/(n(n² − 1)) with Σd² = 10; of 45 pairs 5 are the other way round.
    found = measures.agreement(early, late, all_of(late), "spearman")
    assert found.value == pytest.approx(1 - 60 / 990)
    assert -1 <= found.low < found.value < found.high <= 1
    assert measures.agreement(early, late, all_of(late), "kendall").value == pytest.approx(35 / 45)


def test_an_interval_is_as_wide_as_chance_makes_it(measures: ModuleType) -> None:
    """Of pairs that are drawn with a known correlation, about 95 in 100 intervals hold it."""
    measures.RESAMPLES = 200
    rng = np.random.default_rng(0)
    slope, held = 0.8, 0
    truth = 6 / np.pi * np.arcsin(slope / 2)  # Spearman's ρ of two normals that correlate so
    for _ in range(60):
        late = rng.normal(size=60)
        early = slope * late + np.sqrt(1 - slope**2) * rng.normal(size=60)
        found = measures.agreement(early, late, all_of(list(late)), "spearman")
        held += found.low <= truth <= found.high
    assert 52 <= held <= 60


def test_groups_are_compared_within_themselves(measures: ModuleType) -> None:
    """Each group is ranked the wrong way round, which all together do not show."""
    late = [float(n) for n in range(16)]
    early = [*reversed(late[:8]), *reversed(late[8:])]
    groups = [np.arange(8), np.arange(8, 16)]
    assert measures.agreement(early, late, all_of(late), "spearman").value > 0.4
    inside = measures.agreement(early, late, groups, "spearman")
    assert inside == pytest.approx((-1, -1, -1))


def test_a_group_with_nothing_to_rank_counts_as_nothing_found(measures: ModuleType) -> None:
    late = [float(n) for n in range(16)]
    early = [0.0] * 8 + late[8:]
    groups = [np.arange(8), np.arange(8, 16)]
    assert measures.agreement(early, late, groups, "kendall") == pytest.approx((0.5, 0.5, 0.5))
    assert measures.agreement([1.0] * 16, late, groups, "kendall") is None


def test_states_of_like_value_come_together(measures: ModuleType) -> None:
    assert measures.alike([1.0] * 15) == []
    values = [float(n % 20) for n in range(40)]
    groups = measures.alike(values)
    assert [len(own) for own in groups] == [8] * 5
    assert {values[n] for n in groups[0]} == {0, 1, 2, 3}


def test_what_halving_keeps_that_is_known(measures: ModuleType) -> None:
    late = [float(n) for n in range(20)]
    # Best by late: 0 and 1; by early 0 is the 2nd and 1 the 8th.
    early = [2.0, 8, 1, 3, 4, 5, 6, 7, *range(9, 21)]
    whole = all_of(late)
    assert measures.kept(early, late, whole, 10, 10) == pytest.approx(0.5)
    assert measures.kept(early, late, whole, 10, 25) == pytest.approx(0.5)
    assert measures.kept(early, late, whole, 10, 50) == pytest.approx(1)
    # Where all are the same, chance keeps as many as go on.
    assert measures.kept([0.0] * 20, late, whole, 10, 25) == pytest.approx(0.25)
    halves = [np.arange(10), np.arange(10, 20)]
    assert measures.kept(early, late, halves, 10, 10) == pytest.approx(0.5)  # 10 of the second


@given(early=VALUES, data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_are_those_of_scipy_and_lie_in_their_interval_of_possible_ones(
    measures: ModuleType, early: list[int], data: st.DataObject
) -> None:
    measures.RESAMPLES = 20
    late = data.draw(st.lists(st.integers(0, 20), min_size=len(early), max_size=len(early)))
    whole = all_of(list(map(float, early)))
    for name, usual in (("spearman", spearmanr), ("kendall", kendalltau)):
        found = measures.agreement(early, late, whole, name)
        if len(set(early)) == 1 or len(set(late)) == 1:
            assert found is None
        else:
            assert found.value == pytest.approx(usual(early, late).statistic)
            assert -1 - 1e-9 <= found.low <= found.high <= 1 + 1e-9


@given(values=VALUES)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_groups_take_every_state_once_in_rising_order(
    measures: ModuleType, values: list[int]
) -> None:
    groups = measures.alike(values)
    if not groups:
        assert len(values) < 2 * measures.LEAST
        return
    assert sorted(n for own in groups for n in own) == list(range(len(values)))
    sizes = [len(own) for own in groups]
    assert min(sizes) >= measures.LEAST
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) <= measures.MOST_GROUPS
    for lower, higher in pairwise(groups):
        assert max(values[n] for n in lower) <= min(values[n] for n in higher)


@given(early=VALUES, data=st.data())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_kept_is_a_share_that_grows_with_what_goes_on(
    measures: ModuleType, early: list[int], data: st.DataObject
) -> None:
    late = data.draw(st.lists(st.integers(0, 20), min_size=len(early), max_size=len(early)))
    whole = all_of(list(map(float, early)))
    shares = [measures.kept(early, late, whole, 10, within) for within in (10, 25, 50, 100)]
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == pytest.approx(1)
    order = data.draw(st.permutations(range(len(early))))
    mixed = [[values[n] for n in order] for values in (early, late)]
    assert measures.kept(*mixed, whole, 10, 25) == pytest.approx(shares[1])
    if len(set(early)) == len(early):
        assert measures.kept(early, early, whole, 10, 10) == pytest.approx(1)

"""Hypervolume of loss against latency: against a sum over a fine grid, and one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.search.hypervolume import Covered, contributions, hypervolume
from kdnas.search.reward import pareto_front

POINTS = st.lists(st.tuples(st.floats(-0.5, 1.5), st.floats(0.02, 2.0)), max_size=12)


def on_a_grid(points: list[tuple[float, float]]) -> float:
    ups = np.linspace(0, 6, 60_001)
    lowest = np.ones_like(ups)
    for loss, ratio in points:
        reached = ups <= -np.log2(ratio)
        lowest[reached] = np.minimum(lowest[reached], np.clip(loss, 0, 1))
    return float((1 - lowest)[:-1].sum() * (ups[1] - ups[0]))


def test_a_halving_with_four_fifths_of_the_signal_is_four_fifths() -> None:
    assert hypervolume([(0.2, 0.5)]) == pytest.approx(0.8)
    assert hypervolume([(0.2, 0.5), (0.6, 0.25)]) == pytest.approx(0.8 + 0.4)


def test_who_is_no_faster_than_the_teacher_covers_nothing() -> None:
    assert hypervolume([]) == hypervolume([(0.0, 1.0), (0.0, 2.0)]) == 0


@given(POINTS)
def test_it_is_the_region_below_the_teacher_and_above_a_student(
    points: list[tuple[float, float]],
) -> None:
    assert hypervolume(points) == pytest.approx(on_a_grid(points), abs=2e-3)


@given(POINTS)
def test_a_contribution_is_what_the_others_do_not_cover(points: list[tuple[float, float]]) -> None:
    front = [points[i] for i in pareto_front(points)]
    wanted = [
        hypervolume(front) - hypervolume(front[:i] + front[i + 1 :]) for i in range(len(front))
    ]
    assert contributions(front) == pytest.approx(wanted, abs=1e-9)


@given(POINTS, POINTS)
def test_a_gain_is_what_adding_brings_and_excess_what_is_missing(
    there: list[tuple[float, float]], asked: list[tuple[float, float]]
) -> None:
    covered = Covered()
    for point in there:
        covered.add(point[0], -float(np.log2(point[1])))
    assert covered.volume == pytest.approx(hypervolume(there))
    losses, ratios = np.array(asked, np.float64).reshape(-1, 2).T
    ups = -np.log2(ratios)
    gains, excess = covered.gains(losses, ups), covered.excess(losses, ups)
    for point, up, gain, above in zip(asked, ups, gains, excess, strict=True):
        assert gain == pytest.approx(hypervolume([*there, point]) - covered.volume, abs=1e-9)
        # By speed-ups, of which two neighbouring latencies may have the same.
        faster = [np.clip(loss, 0, 1) for loss, ratio in there if -np.log2(ratio) >= up]
        level = min(faster, default=1.0) if up > 0 else 0.0
        assert above == pytest.approx(point[0] - level, abs=1e-9)

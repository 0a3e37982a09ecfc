"""Figures of the report on distillations for one task."""

from __future__ import annotations

import pytest
from scipy import stats

from api.task_distillations.report import interval


def test_intervals_are_students_and_within_what_a_score_can_be() -> None:
    scores = [0.60, 0.62, 0.65]
    mean, error = sum(scores) / 3, stats.sem(scores)
    wanted = stats.t.interval(0.95, 2, mean, error)
    assert interval(scores, "accuracy") == pytest.approx(wanted)
    assert interval(scores) == pytest.approx(wanted)
    assert interval([0.6], "accuracy") is None
    assert interval([0.4, 0.9], "accuracy") == (0.0, 1.0)  # of two seeds it says nothing
    assert interval([0.4, 0.9], "pearson") == (-1.0, 1.0)
    worse = interval([-0.4, -0.3, -0.2], "r2")  # than the mean: there is no end to that
    assert worse is not None
    assert worse[0] < -0.3 < worse[1] < 0

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.distill.stages import plan_stages
from kdnas.errors import SpecError
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.registry import Stage, build_stages
from kdnas.specs.objective_registry import objective_spec

NAMES = ("single", "last", "uniform", "kdnas")


def stages_of(*weights: float) -> tuple[Stage, ...]:
    total = sum(weights)
    return tuple(
        Stage(HiddenState(NAMES[i]), weight / total, rate=1 / (1 + i))
        for i, weight in enumerate(weights)
    )


def test_one_stage_takes_all_steps() -> None:
    (plan,) = plan_stages(build_stages(objective_spec("hs")), 7)
    assert (plan.first_step, plan.steps, plan.end, plan.total_steps) == (0, 7, 7, 7)
    assert plan.rate == 1.0
    assert plan.objective == HiddenState()


def test_two_stages_are_seven_to_three() -> None:
    first, second = plan_stages(build_stages(objective_spec("hs+od")), 1000)
    assert (first.first_step, first.end) == (0, 700)
    assert (second.first_step, second.steps, second.end) == (700, 300, 1000)
    assert (first.total_steps, second.total_steps) == (1000, 1000)
    assert (first.objective.name, second.objective.name) == ("hs", "od")
    assert (first.rate, second.rate) == (1.0, 0.6)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=4), st.integers(4, 5000))
def test_any_shares_add_up(weights: list[float], total: int) -> None:
    stages = stages_of(*weights)
    plans = plan_stages(stages, total)
    assert [p.objective for p in plans] == [s.objective for s in stages]
    assert [p.rate for p in plans] == [s.rate for s in stages]
    assert plans[0].first_step == 0
    assert plans[-1].end == total
    assert all(a.end == b.first_step for a, b in itertools.pairwise(plans))
    assert all(p.steps >= 1 for p in plans)
    share = 0.0
    for stage, plan in zip(stages, plans, strict=True):
        share += stage.share
        # A step more or less by rounding, and what stages that are too short were given.
        assert abs(plan.end - share * total) <= len(stages)


@pytest.mark.parametrize("weights", [(1, 1000), (1000, 1), (1, 1000, 1)])
def test_each_stage_gets_a_step_however_small_its_share(weights: tuple[float, ...]) -> None:
    for total in range(len(weights), 8):
        plans = plan_stages(stages_of(*weights), total)
        assert all(plan.steps >= 1 for plan in plans)
        assert sum(plan.steps for plan in plans) == total


@pytest.mark.parametrize(
    ("num_stages", "steps", "words"),
    [(2, 1, "1 step is too few for 2 stages"), (3, 2, "2 steps are too few for 3 stages")],
)
def test_too_few_steps_are_refused_with_the_number(num_stages: int, steps: int, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        plan_stages(stages_of(*[1.0] * num_stages), steps)
    assert "give more `steps`" in str(caught.value)


def test_the_curve_has_about_fifty_points() -> None:
    assert plan_stages(stages_of(1), 1000)[0].curve_every == 20
    assert plan_stages(stages_of(1), 7)[0].curve_every == 1


def test_no_steps_leave_the_last_stage_in_which_a_student_is_read() -> None:
    (plan,) = plan_stages(build_stages(objective_spec("hs+od")), 0)
    assert (plan.objective.name, plan.first_step, plan.steps, plan.end) == ("od", 0, 0, 0)
    assert plan.curve_every == 1

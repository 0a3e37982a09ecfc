from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.records import Candidate, Losses, LossName
from kdnas.search.reward import (
    RewardFunction,
    best_under,
    depth_warning,
    pareto_front,
    ranking,
    reward,
)
from kdnas.specs.search import RewardSpec

# Trivedi et al. 2023, Table 3, with the teacher's CPU latency of Table 2.
TEACHER_MS = 64.98
TABLE_3 = [
    ("Random_Seed1", 0.051, 13.20, 1.02),
    ("Random_Seed2", 0.050, 11.40, 1.03),
    ("Random_Seed3", 0.057, 14.17, 1.01),
    ("KDNAS_Arch1", 0.050, 5.97, 1.07),
    ("KDNAS_Arch2", 0.049, 6.12, 1.07),
    ("KDNAS_Arch3", 0.043, 9.19, 1.05),
]

losses = st.floats(0, 1)
latencies = st.floats(0.01, 1e4)
exponents = st.floats(-2, -0.01)


def candidate(index: int, reward: float | None, ms: float, loss: float = 0.3) -> Candidate:
    return Candidate(
        id=f"c{index}",
        search_id="s",
        episode=1,
        position=index,
        index=index,
        architecture=Architecture(index + 1, 2, 96, 96),
        source="random",
        predicted_reward=None,
        status="failed" if reward is None else "succeeded",
        losses=Losses(loss, loss, loss, loss),
        latency_ms=ms,
        latency_ratio=ms / 10,
        reward=reward,
    )


@pytest.mark.parametrize(("name", "loss", "cpu_ms", "published"), TABLE_3)
def test_published_rewards(name: str, loss: float, cpu_ms: float, published: float) -> None:
    ours = reward(loss, cpu_ms, TEACHER_MS, alpha=-0.06, beta=0.6).reward
    assert ours == pytest.approx(published, abs=0.01), name


@given(losses, losses, latencies, exponents)
def test_smaller_loss_larger_reward(a: float, b: float, ms: float, alpha: float) -> None:
    low, high = sorted((a, b))
    assert reward(low, ms, 10, alpha, 0.6).reward >= reward(high, ms, 10, alpha, 0.6).reward
    if high - low > 1e-6:
        assert reward(low, ms, 10, alpha, 0.6).reward > reward(high, ms, 10, alpha, 0.6).reward


@given(st.floats(0, 0.99), latencies, latencies, exponents)
def test_smaller_latency_larger_reward(loss: float, a: float, b: float, alpha: float) -> None:
    fast, slow = sorted((a, b))
    assert reward(loss, fast, 10, alpha, 0.6).reward >= reward(loss, slow, 10, alpha, 0.6).reward
    if slow / fast > 1.001:
        assert reward(loss, fast, 10, alpha, 0.6).reward > reward(loss, slow, 10, alpha, 0.6).reward


@given(st.floats(-1e30, 1e30), latencies, exponents)
def test_rewards_are_finite_and_clipping_is_noted(loss: float, ms: float, alpha: float) -> None:
    value, note = reward(loss, ms, 10, alpha, 0.6)
    assert math.isfinite(value)
    assert value >= 0
    assert (note is None) == (0 <= loss <= 1)


def test_without_the_clip_slower_would_win() -> None:
    assert reward(1.7, 1, 10, -0.1, 0.6) == (0.0, "loss 1.7 counts as 1 in the reward")


@pytest.mark.parametrize("bad", [(math.nan, 1, 10), (0.5, 0, 10), (0.5, 1, 0), (0.5, math.inf, 1)])
def test_impossible_numbers_are_refused(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"finite|above 0"):
        reward(*bad, alpha=-0.1, beta=0.6)


def test_latency_price_is_what_a_doubling_costs() -> None:
    function = RewardFunction.from_spec(RewardSpec(latency_price=0.10))
    losses = Losses(9, 9, relative=0.3, output=9)
    assert function(losses, 0.5).reward == pytest.approx(0.9 * function(losses, 0.25).reward)
    assert RewardFunction.from_spec(RewardSpec(loss="mean", alpha=-0.06)).alpha == -0.06


def test_rescored_by_another_loss() -> None:
    function = RewardFunction("output", -0.1, 0.6)
    given_losses = Losses(0, 0, 0.2, 0.4)
    one = replace(candidate(0, 0.5, 3.0), losses=given_losses)
    assert function.rescored(one).reward == function(given_losses, 0.3).reward
    assert function.rescored(replace(one, losses=None)).reward is None
    assert function.rescored(replace(one, status="failed", reward=None)).reward is None


@pytest.mark.parametrize(
    ("loss", "depths", "warned"),
    [("mean", (2, 4), "2 or 4"), ("mean", (6, 3, 6, 4), "3, 4 or 6"), ("mean", (4, 4), None),
     ("mean", (), None), ("relative", (2, 4), None), ("output", (2, 4), None)],
)  # fmt: skip
def test_a_mean_loss_over_several_depths_is_a_warning(
    loss: LossName, depths: tuple[int, ...], warned: str | None
) -> None:
    found = depth_warning(loss, [Architecture(depth, 2, 96, 96) for depth in depths])
    if warned is None:
        assert found is None
    else:
        assert found is not None
        assert f"have {warned} layers; take reward.loss relative" in found


def test_ranking_breaks_ties_by_latency_then_index() -> None:
    rows = [candidate(i, r, ms) for i, (r, ms) in enumerate([(1, 5), (2, 5), (2, 4), (2, 4)])]
    rows += [candidate(9, None, 1), replace(rows[1], id="again", episode=2)]
    assert [c.id for c in ranking(rows)] == ["c2", "c3", "c1", "c0"]


def test_best_under_a_budget_is_the_lowest_loss() -> None:
    rows = [
        replace(candidate(i, 1.0, ms), losses=Losses(1.0, loss, loss, 1 - loss))
        for i, (loss, ms) in enumerate([(0.1, 9.0), (0.2, 5.0), (0.2, 4.0), (0.4, 1.0)])
    ]
    found = [best_under(rows, budget, "relative") for budget in (9.0, 8.9, 4.5, 3.0, 0.5)]
    assert [None if c is None else c.index for c in found] == [0, 2, 2, 3, None]
    by_output = best_under(rows, 9.0, "output")
    assert by_output is not None
    assert by_output.index == 3


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_pareto_front(points: list[tuple[int, int]]) -> None:
    def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a != b and a[0] <= b[0] and a[1] <= b[1]

    front = pareto_front(points)
    on_front = [points[i] for i in front]
    assert on_front == sorted(set(on_front), key=lambda p: p[1])
    for i, point in enumerate(points):
        beaten = any(beats(other, point) for other in points)
        assert (point in on_front) == (not beaten)
        if point in on_front:
            assert points.index(point) in front
        assert front.count(i) <= 1


@given(losses, st.floats(0.01, 10), st.sampled_from(["relative", "output", "mean"]), exponents)
def test_a_reward_tells_the_loss_that_it_is_made_of(
    loss: float, ratio: float, name: LossName, alpha: float
) -> None:
    function = RewardFunction(name, alpha, 0.6)
    assert function.loss_of(function.of_loss(loss, ratio), ratio) == pytest.approx(loss, abs=1e-9)
    assert function.loss_of(function.of_loss(0.0, ratio) * 1.5, ratio) == pytest.approx(-0.5)

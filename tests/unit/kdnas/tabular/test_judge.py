"""What replays are worth under each goal: by what they were told, judged by truth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.search.hypervolume import hypervolume
from kdnas.specs.search import SearchSpec
from kdnas.tabular.judge import Judge
from kdnas.tabular.replay import Replay
from kdnas.tabular.surface import PartOfSpace, Surface, synthetic

SPACE = PartOfSpace.of(
    synthetic("additive").space, [Architecture(n, 12, 768, 3072) for n in (3, 6, 12)]
)
LATENCIES, TRUTH = [20.0, 40.0, 80.0], [0.5, 0.3, 0.2]
SURFACE = Surface(
    "three", SPACE, [[loss] for loss in TRUTH], [], {}, LATENCIES, 100.0, [1.0, 2.0, 3.0]
)
ALL = Replay("some", 0, (0, 2, 1))


class Misleading(Surface):
    """Searches are told that the slowest is worse than the one before it."""

    def observed(self, index: int, seed: int) -> float:
        return {0: 0.5, 1: 0.3, 2: 0.35}[index]


def judge(goal: str, surface: Surface = SURFACE, **more: Any) -> Judge:
    return Judge(surface, SearchSpec.read({"goal": goal, **more}, "test"), range(3))


def misled() -> Surface:
    return Misleading(**{name: getattr(SURFACE, name) for name in SURFACE.__dataclass_fields__})


def test_a_reward_is_the_one_that_was_asked_for() -> None:
    asked = judge("reward", reward={"latency_price": 0.0})
    assert asked.rewards == pytest.approx([0.5, 0.7, 0.8])
    assert [asked.regret(ALL, n) for n in (1, 2, 3)] == pytest.approx([0.3, 0, 0])
    assert (asked.goal_states, asked.trainings(ALL)) == ({2}, 2)
    dear = judge("reward", reward={"latency_price": 0.5})
    assert dear.goal_states == {0}


@pytest.mark.parametrize(
    "changes", [{"teacher_ms": 20.0}, {"losses": [[loss * 10] for loss in TRUTH]}]
)
@pytest.mark.parametrize("goal", ["reward", "front"])
def test_where_no_student_is_worth_anything_nobody_is_judged(
    goal: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(SpecError, match=r"nothing can be found on three: .* teacher's \(\d+ ms\)"):
        judge(goal, replace(SURFACE, **changes)).covered(ALL, 3)


def test_a_limit_has_no_price_for_latency() -> None:
    spec = {"limits": {"max_latency_ratio": 0.5}, "reward": {"latency_price": 0.5}}
    asked = replace(judge("limit", **spec), allowed=(0, 1))
    assert asked.rewards == pytest.approx([0.5, 0.7, 0.8])
    assert asked.goal_states == {1}
    only_one = replace(ALL, order=(0,))
    assert asked.regret(only_one, 9) == pytest.approx(0.2)
    assert asked.trainings(only_one) == math.inf


def test_it_recommends_what_it_was_told_and_is_judged_by_truth() -> None:
    asked = judge("reward", misled(), reward={"latency_price": 0.0})
    assert asked.regret(ALL, 3) == pytest.approx(0.1)
    assert asked.best_loss(ALL, 3, 1.0) == 0.3
    front = judge("front", misled())
    fast, middle = (0.5, 0.2), (0.3, 0.4)
    whole = hypervolume([fast, middle, (0.2, 0.8)])
    assert front.covered(ALL, 3) == pytest.approx(hypervolume([fast, middle]) / whole)


def test_a_front_is_solved_with_nearly_all_of_the_hypervolume() -> None:
    asked = judge("front")
    shares = [asked.covered(ALL, n) for n in (1, 2, 3)]
    assert shares == sorted(shares)
    assert shares[2] == pytest.approx(1)
    assert [asked.regret(ALL, n) for n in (1, 2, 3)] == pytest.approx([1 - s for s in shares])
    assert asked.trainings(ALL) == 3
    assert asked.trainings(replace(ALL, order=(0, 2))) == math.inf


def test_the_best_loss_under_a_latency() -> None:
    asked = judge("reward")
    assert [asked.best_loss(ALL, 3, ratio) for ratio in (0.1, 0.2, 0.4, 1.0)] == [
        math.inf, 0.5, 0.3, 0.2,
    ]  # fmt: skip
    assert asked.best_loss(ALL, 2, 0.4) == 0.5


def test_what_was_stopped_counts_as_a_training_and_is_not_recommended() -> None:
    stopped = replace(ALL, stopped=(2,))
    assert stopped.finished(2) == [0]
    asked = judge("reward", reward={"latency_price": 0.0})
    assert [asked.regret(stopped, n) for n in (1, 2, 3)] == pytest.approx([0.3, 0.3, 0.1])
    assert asked.trainings(stopped) == math.inf
    assert asked.best_loss(stopped, 3, 1.0) == 0.3
    front = judge("front")
    assert front.covered(stopped, 3) == front.covered(replace(ALL, order=(0, 1)), 2) < 0.99
    assert front.trainings(stopped) == math.inf

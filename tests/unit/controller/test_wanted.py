"""What losses are worth under each goal, and what is taken by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.wanted import Wanted, best_of, known_losses
from kdnas.search.hypervolume import hypervolume
from kdnas.search.protocols import History, Observation
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem

PROBLEM = benchmark_problem()
FRONT = replace(PROBLEM, goal="front")
ALL = list(range(len(BENCHMARK_SPACE)))
LOSSES = np.random.default_rng(0).uniform(0.05, 0.95, len(ALL))


def test_a_reward_is_the_problems_whatever_is_there() -> None:
    expected = [PROBLEM.reward_of(i, float(LOSSES[i])) for i in ALL]
    for there in ({}, {0: 0.1, 5: 0.01}):
        assert Wanted(PROBLEM, there).worth(ALL, LOSSES) == pytest.approx(expected)
    hopeful = Wanted(PROBLEM, {}).worth([0, 0, 0], np.array([-0.5, 0.0, 0.5]))
    assert list(hopeful) == sorted(hopeful, reverse=True)
    assert len(set(hopeful)) == 3, "a loss below 0 is a better hope than one of 0"


def test_on_a_front_it_is_what_a_state_adds() -> None:
    there = {i: float(LOSSES[i]) for i in ALL[::3]}
    points = [(loss, FRONT.facts[i].latency_ratio) for i, loss in there.items()]
    worth = Wanted(FRONT, there).worth(ALL, LOSSES)
    for i in ALL:
        more = hypervolume([*points, (float(LOSSES[i]), FRONT.facts[i].latency_ratio)])
        gain = more - hypervolume(points)
        assert worth[i] == pytest.approx(gain, abs=1e-9) if gain > 1e-9 else worth[i] <= 1e-9


def test_what_adds_nothing_is_worth_less_the_further_it_is_from_it() -> None:
    slow = max(ALL, key=lambda i: FRONT.facts[i].latency_ratio)
    fast = min(ALL, key=lambda i: FRONT.facts[i].latency_ratio)
    wanted = Wanted(FRONT, {fast: 0.2})
    near, far = wanted.worth([slow, slow], np.array([0.3, 0.6]))
    assert far < near < 0


def test_the_best_are_taken_one_after_the_other() -> None:
    by_reward = sorted(ALL, key=lambda i: -PROBLEM.reward_of(i, float(LOSSES[i])))
    assert best_of(Wanted(PROBLEM, {}), ALL, LOSSES, 5) == by_reward[:5]
    taken = best_of(Wanted(FRONT, {}), ALL, LOSSES, 4)
    points: list[tuple[float, float]] = []
    for place in taken:
        volumes = [
            hypervolume([*points, (float(LOSSES[i]), FRONT.facts[i].latency_ratio)]) for i in ALL
        ]
        assert volumes[place] == pytest.approx(max(volumes))
        points.append((float(LOSSES[place]), FRONT.facts[place].latency_ratio))
    assert best_of(Wanted(FRONT, {}), [3, 5], LOSSES[:2], 9) in ([0, 1], [1, 0])


def test_losses_of_failures_are_not_known() -> None:
    told = (Observation(1, 4, 0.5, loss=0.4), Observation(1, 2, 0.0, failed=True))
    assert known_losses(History((told, (Observation(2, 1, 0.6, loss=0.3),)))) == {4: 0.4, 1: 0.3}

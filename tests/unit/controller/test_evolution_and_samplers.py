"""Regularised evolution and Optuna's samplers: their contract, and that they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller.strategies import build_strategy
from kdnas.architecture import Architecture
from kdnas.search.protocols import History
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_losses,
    benchmark_ms,
    benchmark_problem,
    benchmark_reward,
)
from kdnas.testing.strategy_contract import ALL, StrategyContract, observed


def spec(name: str) -> ControllerSpec:
    """With a population that fits a space of 64 states."""
    options = {} if name == "tpe" else {"population": 8}
    return ControllerSpec.read({"strategy": {"name": name, **options}}, "request")


class _Ours(StrategyContract):
    name = ""

    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Any:
        return build_strategy(spec(self.name), space, seed)


class TestEvolution(_Ours):
    name = "evolution"


class TestTPE(_Ours):
    name = "tpe"


class TestNSGA2(_Ours):
    name = "nsga2"


def played(name: str, seed: int, episodes: int, count: int = 4) -> list[list[int]]:
    strategy: Any = build_strategy(spec(name), BENCHMARK_SPACE, seed)
    strategy.begin(benchmark_problem())
    history = History()
    for episode in range(1, episodes + 1):
        proposals = strategy.ask(episode, count, ALL, history)
        history = observed(history, episode, proposals)
        strategy.tell(episode, history)
    return [[o.index for o in told] for told in history.episodes]


@pytest.mark.parametrize("name", ["evolution", "tpe"])
def test_later_picks_are_better_than_earlier_ones(name: str) -> None:
    rewards = [benchmark_reward(state) for state in BENCHMARK_SPACE.states]
    gains = []
    for seed in range(6):
        episodes = played(name, seed, 7)
        first, last = (np.mean([rewards[i] for e in part for i in e]) for part in _ends(episodes))
        gains.append(last - first)
    assert np.mean(gains) > 0.02
    assert sum(gain > 0 for gain in gains) >= 5


def _ends(episodes: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    return episodes[:2], episodes[-2:]


def test_picks_come_nearer_to_the_front() -> None:
    """By the share of all states that beat a pick in both loss and latency."""
    loss = np.array([benchmark_losses(state).relative for state in BENCHMARK_SPACE.states])
    latency = np.array([benchmark_ms(state) for state in BENCHMARK_SPACE.states])

    def beaten(episodes: list[list[int]]) -> float:
        picks = [index for told in episodes for index in told]
        return float(np.mean([np.mean((loss < loss[i]) & (latency < latency[i])) for i in picks]))

    parts = [_ends(played("nsga2", seed, 8)) for seed in range(6)]
    before, after = (np.mean([beaten(part[end]) for part in parts]) for end in (0, 1))
    assert after < before


def test_a_child_differs_from_its_parent_in_one_axis() -> None:
    strategy: Any = build_strategy(spec("evolution"), BENCHMARK_SPACE, 0)
    strategy.begin(benchmark_problem())
    history = observed(History(), 1, strategy.ask(1, 8, ALL, History()))
    parents = [BENCHMARK_SPACE[o.index] for o in history.episodes[0]]
    for proposal in strategy.ask(2, 6, ALL, history):
        assert proposal.source == "evolution"
        child = BENCHMARK_SPACE[proposal.index]
        assert min(_distance(child, parent) for parent in parents) == 1


def _distance(one: Architecture, other: Architecture) -> int:
    return sum(getattr(one, axis) != getattr(other, axis) for axis in AXES)


@pytest.mark.parametrize("name", ["evolution", "tpe", "nsga2"])
def test_where_nearly_all_was_seen_what_is_left_is_found(name: str) -> None:
    episodes = played(name, 0, 20, count=7)
    assert sorted(index for told in episodes for index in told) == list(ALL)


def test_a_space_of_one_value_an_axis_has_no_children() -> None:
    space = SearchSpace(layers=(1,), heads=(2,), hidden=(96,), intermediate=(192,))
    strategy: Any = build_strategy(spec("evolution"), space, 0)
    strategy.begin(benchmark_problem(space))
    assert len(strategy.ask(1, 9, range(len(space)), History())) == len(space)

"""The Gaussian process: predicts what it has seen enough of, and copes with many states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller import gaussian_process
from controller.gaussian_process import GaussianProcessStrategy
from controller.strategies import build_strategy
from controller.wanted import Wanted
from kdnas.search.protocols import History, Observation
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_losses,
    benchmark_problem,
    benchmark_reward,
)
from kdnas.testing.strategy_contract import ALL, StrategyContract, observed


def spec(**options: Any) -> ControllerSpec:
    return ControllerSpec.read({"strategy": {"name": "gp", **options}}, "request")


SPEC = spec()
LARGE_SPACE = SearchSpace.from_axes(
    {
        "layers": list(range(1, 13)),
        "heads": [2, 4],
        "hidden": [96, 192, 384, 768],
        "intermediate": [192, 384, 768, 1536],
        "activation": ["gelu", "relu"],
    }
)


class TestGaussianProcess(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Any:
        return build_strategy(SPEC, space, seed)


def begun(space: SearchSpace = BENCHMARK_SPACE, seed: int = 0, **known: Any) -> Any:
    strategy = GaussianProcessStrategy(SPEC, space, seed)
    strategy.begin(benchmark_problem(space, **known))
    return strategy


def test_its_prediction_is_near_the_truth_once_it_has_seen_enough() -> None:
    strategy, seen = begun(with_starts=False), [i for i in ALL if i % 3]
    told = tuple(
        Observation(1, i, benchmark_reward(BENCHMARK_SPACE[i]), loss=_loss(i)) for i in seen
    )
    for proposal in strategy.ask(2, 8, ALL, History((told,))):
        truth = benchmark_reward(BENCHMARK_SPACE[proposal.index])
        assert proposal.predicted_reward == pytest.approx(truth, abs=0.02)
        assert proposal.source == "gp"


def _loss(index: int) -> float:
    return benchmark_losses(BENCHMARK_SPACE[index]).relative


def test_of_very_many_states_the_hopeful_ones_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It picks what it would pick among all, without a matrix of all pairs."""
    allowed = range(len(LARGE_SPACE))
    assert len(LARGE_SPACE) > 700
    told = tuple(
        Observation(1, i, benchmark_reward(LARGE_SPACE[i]), loss=_large_loss(i))
        for i in range(0, len(LARGE_SPACE), 61)
    )
    history = History((told,))
    among_all = begun(LARGE_SPACE).ask(2, 1, allowed, history)
    monkeypatch.setattr(gaussian_process, "MOST_PAIRED", 50)
    few = begun(LARGE_SPACE).ask(2, 5, allowed, history)
    assert few[0].index == among_all[0].index
    assert len({p.index for p in few}) == 5


def _large_loss(index: int) -> float:
    return benchmark_losses(LARGE_SPACE[index]).relative


def test_it_must_be_told_what_is_known() -> None:
    strategy = GaussianProcessStrategy(SPEC, BENCHMARK_SPACE, 0)
    with pytest.raises(ValueError, match="was not told of what is known; call begin"):
        _ = strategy.problem


class TestThompson(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Any:
        return build_strategy(spec(acquisition="thompson"), space, seed)


def test_draws_are_of_what_is_believed() -> None:
    """Their mean and spread are those of the losses, which no pick changes."""
    strategy = GaussianProcessStrategy(spec(acquisition="thompson"), BENCHMARK_SPACE, 0)
    strategy.begin(benchmark_problem(with_starts=False))
    known = {i: _loss(i) for i in range(0, len(ALL), 7)}
    _, belief = strategy.believe(known, list(ALL), Wanted(strategy.problem, known), 2, len(ALL))
    before = belief.deviation
    belief.look(5)
    drawn = np.array([strategy.hoped(belief) for _ in range(4000)])
    scale = before.max() + 1e-9
    assert np.abs(drawn.mean(axis=0) - belief.mean).max() < 0.1 * scale
    assert np.abs(drawn.std(axis=0) - before).max() < 0.1 * scale


def test_draws_hang_on_seed_and_episode() -> None:
    history = observed(History(), 1, begun().ask(1, 6, ALL, History()))
    picks = []
    for seed, episode in ((0, 2), (1, 2), (0, 3)):
        strategy = GaussianProcessStrategy(spec(acquisition="thompson"), BENCHMARK_SPACE, seed)
        strategy.begin(benchmark_problem())
        asked = [strategy.ask(episode, 12, ALL, history) for _ in range(2)]
        assert asked[0] == asked[1]
        picks.append([p.index for p in asked[0]])
    assert picks[0] != picks[1]
    assert picks[0] != picks[2]

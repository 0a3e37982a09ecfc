"""The controller that learns: how soon it ranks what it has not seen, and that it has no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from controller.learning import LearningController
from controller.strategies import build_strategy
from controller.wanted import Wanted
from kdnas.search.limits import state_facts
from kdnas.search.protocols import History, Observation, SearchProblem
from kdnas.search.reward import RewardFunction
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec, RewardSpec
from kdnas.tabular.surface import Surface, synthetic
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem
from kdnas.testing.strategy_contract import ALL, StrategyContract, observed


class TestLearningController(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Any:
        made = build_strategy(ControllerSpec(), space, seed)
        assert isinstance(made, LearningController)
        return made


def problem_of(surface: Surface, *, with_starts: bool) -> SearchProblem:
    sizes = dict(zip(surface.space.states, surface.params_millions, strict=True))
    return SearchProblem(
        surface.space,
        state_facts(surface.space, surface.latencies, sizes.__getitem__),
        surface.starts if with_starts else {},
        RewardFunction.from_spec(RewardSpec()).of_loss,
    )


@pytest.mark.parametrize("name", ["additive", "rough"])
@pytest.mark.parametrize("with_starts", [False, True])
def test_after_two_episodes_it_ranks_what_it_has_not_seen(name: str, with_starts: bool) -> None:
    """And better than the start alone, which its noise keeps from telling all."""
    surface = synthetic(name)
    found = []
    for seed in range(3):
        strategy = LearningController(ControllerSpec(), surface.space, seed)
        problem = problem_of(surface, with_starts=with_starts)
        strategy.begin(problem)
        seen = np.random.default_rng(seed).permutation(len(surface.space))[:40]
        known = {int(i): surface.observed(int(i), seed) for i in seen}
        rest = [i for i in range(len(surface.space)) if i not in known]
        _, belief = strategy.believe(known, rest, Wanted(problem, known), 3, len(rest))
        truth = [surface.truth(i) for i in rest]
        by_start = spearmanr([surface.starts[i] for i in rest], truth).statistic
        found.append((spearmanr(belief.mean, truth).statistic, by_start))
    learned, start = np.median(found, axis=0)
    assert learned >= 0.9
    if with_starts:
        assert learned > start


def test_what_it_has_learned_follows_from_the_history_alone() -> None:
    """Who comes after a restart proposes the same, though nobody has told it anything."""
    lived = LearningController(ControllerSpec(), BENCHMARK_SPACE, 3)
    lived.begin(benchmark_problem())
    history, losses = History(), []
    for episode in (1, 2):
        history = observed(history, episode, lived.ask(episode, 6, ALL, history))
        losses.append(lived.tell(episode, history))
    assert all(loss is not None and 0 <= loss < 1 for loss in losses)
    fresh = LearningController(ControllerSpec(), BENCHMARK_SPACE, 3)
    fresh.begin(benchmark_problem())
    fresh.load(lived.dump())
    assert fresh.ask(3, 6, ALL, history) == lived.ask(3, 6, ALL, history)


def test_it_has_learned_nothing_from_less_than_a_few_losses() -> None:
    strategy = LearningController(ControllerSpec(), BENCHMARK_SPACE, 0)
    strategy.begin(benchmark_problem())
    told = tuple(Observation(1, i, 0.5, loss=0.5) for i in range(3))
    assert strategy.tell(1, History((told,))) is None
    assert {p.source for p in strategy.ask(2, 4, ALL, History((told,)))} == {"reading", "random"}

"""The baselines: their orders, and what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.strategies import STRATEGIES, build_strategy
from kdnas.errors import SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, Observation
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem
from kdnas.testing.strategy_contract import ALL, StrategyContract

PROBLEM = benchmark_problem()


class _Baseline(StrategyContract):
    name = ""
    draws = False

    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Any:
        return build_strategy(spec(self.name), space, seed)


class TestFastestFirst(_Baseline):
    name = "fastest-first"


class TestLargestFirst(_Baseline):
    name = "largest-first"


class TestSizeOnly(_Baseline):
    name = "size-only"


class TestReadingOnly(_Baseline):
    name = "reading-only"


class TestReadingFit(_Baseline):
    name = "reading-fit"


def spec(name: str) -> ControllerSpec:
    return ControllerSpec.read({"strategy": name}, "request")


def asked(name: str, count: int, history: History = History()) -> list[Proposal]:
    strategy = build_strategy(spec(name), BENCHMARK_SPACE, 0)
    strategy.begin(PROBLEM)
    proposals: list[Proposal] = strategy.ask(1, count, ALL, history)
    return proposals


def indices(proposals: list[Proposal]) -> list[int]:
    return [proposal.index for proposal in proposals]


def test_every_strategy_of_ours_is_called_as_it_calls_itself() -> None:
    assert list(STRATEGIES) == [
        *("controller", "gp", "tpe", "nsga2", "evolution", "random"),
        *("fastest-first", "largest-first", "size-only", "reading-only", "reading-fit"),
    ]
    for name in STRATEGIES:
        assert build_strategy(spec(name), BENCHMARK_SPACE, 0).name == name


def test_orders_that_look_at_nothing_but_speed_or_size() -> None:
    latencies = [fact.latency_ms for fact in PROBLEM.facts]
    sizes = [fact.params_millions for fact in PROBLEM.facts]
    assert indices(asked("fastest-first", 8)) == sorted(ALL, key=lambda i: (latencies[i], i))[:8]
    assert indices(asked("largest-first", 8)) == sorted(ALL, key=lambda i: (-sizes[i], i))[:8]
    seen = History(((Observation(1, indices(asked("fastest-first", 1))[0], 0.5),),))
    assert indices(asked("fastest-first", 7, seen)) == indices(asked("fastest-first", 8))[1:]


def test_size_alone_has_the_larger_lose_less_whatever_was_trained() -> None:
    def size(index: int) -> float:
        state = BENCHMARK_SPACE[index]
        return state.layers * state.hidden * (state.intermediate * state.heads) ** (1 / 6)

    strategy = build_strategy(spec("size-only"), BENCHMARK_SPACE, 0)
    strategy.begin(replace(PROBLEM, reward=lambda loss, ratio: 1 - loss))
    first = strategy.ask(1, 6, ALL, History())
    assert [size(p.index) for p in first] == pytest.approx(sorted(map(size, ALL))[: -6 - 1 : -1])
    assert {p.predicted_reward for p in first} == {None}
    told = tuple(Observation(1, p.index, 0.1, loss=0.9) for p in first)
    assert (
        indices(strategy.ask(2, 3, ALL, History((told,))))
        == indices(strategy.ask(1, 9, ALL, History()))[6:]
    )


def test_a_reading_alone_counts_as_the_loss() -> None:
    rewards = [PROBLEM.reward_of(i, PROBLEM.starts[i]) for i in ALL]
    proposals = asked("reading-only", 5)
    assert indices(proposals) == sorted(ALL, key=lambda i: (-rewards[i], i))[:5]
    assert [p.predicted_reward for p in proposals] == [rewards[i] for i in indices(proposals)]


def test_a_line_is_fitted_to_what_was_trained() -> None:
    """Here loss is 2 · start − 1, exactly."""
    trained = tuple(Observation(1, i, 0.5, loss=2 * PROBLEM.starts[i] - 1) for i in (0, 7, 20, 33))
    failed = Observation(1, 5, 0.0, failed=True)
    proposals = asked("reading-fit", 6, History(((*trained, failed),)))
    for proposal in proposals:
        loss = 2 * PROBLEM.starts[proposal.index] - 1
        assert proposal.predicted_reward == pytest.approx(PROBLEM.reward_of(proposal.index, loss))
    predicted = [p.predicted_reward or 0.0 for p in proposals]
    assert np.all(np.diff(predicted) <= 0)


@pytest.mark.parametrize(
    "trained",
    [(), (Observation(1, 3, 0.5, loss=0.2),), (Observation(1, 3, 0.5, failed=True),)],
)
def test_before_there_is_a_line_it_is_the_start(trained: tuple[Observation, ...]) -> None:
    history = History((trained,))
    fit, only = asked("reading-fit", 6, history), asked("reading-only", 6, history)
    assert [(p.index, p.predicted_reward) for p in fit] == [
        (p.index, p.predicted_reward) for p in only
    ]


@pytest.mark.parametrize("name", ["reading-only", "reading-fit"])
def test_states_that_were_not_read_are_counted(name: str) -> None:
    strategy = build_strategy(spec(name), BENCHMARK_SPACE, 0)
    starts = {i: PROBLEM.starts[i] for i in list(ALL)[3:]}
    with pytest.raises(SpecError) as raised:
        strategy.begin(replace(PROBLEM, starts=starts))
    assert str(raised.value) == (
        f"strategy {name} needs the loss with which every state starts, and 3 of "
        f"{len(BENCHMARK_SPACE)} were not read; run `kdnas sweep` with the same settings first"
    )

"""What strategies that model the loss have in common: first picks, few trainings, spread picks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from controller.exploration import Purpose, draw, generator
from controller.gaussian_process import GaussianProcessStrategy
from controller.learning import LearningController
from controller.modelled import Modelled
from controller.sizes import losses_by_size
from controller.wanted import Wanted, known_losses
from kdnas.records import Proposal
from kdnas.search.hypervolume import hypervolume
from kdnas.search.protocols import History, Observation
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec, Goal
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_losses,
    benchmark_problem,
    benchmark_reward,
)
from kdnas.testing.strategy_contract import ALL, observed

KINDS: list[type[Modelled]] = [GaussianProcessStrategy, LearningController]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def spec(kind: type[Modelled], **options: Any) -> ControllerSpec:
    return ControllerSpec.read({"strategy": {"name": kind.name, **options}}, "request")


def begun(kind: type[Modelled], seed: int = 0, goal: Goal = "reward", **known: Any) -> Modelled:
    strategy = kind(spec(kind), BENCHMARK_SPACE, seed)
    strategy.begin(replace(benchmark_problem(**known), goal=goal))
    return strategy


def trainings_to_the_best(kind: type[Modelled], seed: int, *, with_starts: bool) -> int:
    best = max(ALL, key=lambda i: benchmark_reward(BENCHMARK_SPACE[i]))
    strategy, history = begun(kind, seed, with_starts=with_starts), History()
    for episode in range(1, len(ALL)):
        proposals = strategy.ask(episode, 4, ALL, history)
        history = observed(history, episode, proposals)
        if best in history.indices:
            break
    return len(history.indices)


@pytest.mark.parametrize("with_starts", [False, True])
def test_it_needs_far_fewer_trainings_than_a_draw(kind: type[Modelled], with_starts: bool) -> None:
    """A draw takes half of the states in the mean."""
    needed = [trainings_to_the_best(kind, seed, with_starts=with_starts) for seed in range(5)]
    assert np.median(needed) <= len(ALL) / 4


def test_a_front_is_covered_with_few_trainings(kind: type[Modelled]) -> None:
    facts = benchmark_problem().facts
    losses = [benchmark_losses(state).relative for state in BENCHMARK_SPACE.states]
    whole = hypervolume([(losses[i], facts[i].latency_ratio) for i in ALL])
    strategy, history = begun(kind, goal="front", with_starts=False), History()
    for episode in range(1, 4):
        history = observed(history, episode, strategy.ask(episode, 6, ALL, history))
    found = hypervolume([(losses[i], facts[i].latency_ratio) for i in history.indices])
    assert found >= 0.98 * whole
    drawn = [
        hypervolume([(losses[i], facts[i].latency_ratio) for i in rng.permutation(len(ALL))[:18]])
        for rng in map(np.random.default_rng, range(20))
    ]
    assert found > np.quantile(drawn, 0.9)


def test_a_pick_makes_those_like_it_less_uncertain(
    kind: type[Modelled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing counts but what is not known, picks of one episode lie apart."""
    strategy = kind(spec(kind, confidence=1e6), BENCHMARK_SPACE, 0)
    free = replace(benchmark_problem(with_starts=False), reward=lambda loss, ratio: 1 - loss)
    strategy.begin(free)
    drawn = draw(generator(0, 1, Purpose.EXPLORATION), list(ALL), 6)
    history = observed(History(), 1, [Proposal(index, "random") for index in drawn])

    def picks(count: int) -> list[int]:
        return [proposal.index for proposal in strategy.ask(2, count, ALL, history)]

    def apart(picked: list[int]) -> float:
        return float(np.median(pdist(strategy.features[picked])))

    picked = picks(6)
    assert picked[:1] == picks(1)
    wanted = Wanted(free, history.trained)
    _, belief = strategy.believe(known_losses(history), ALL, wanted, 2, len(ALL))
    monkeypatch.setattr(type(belief), "look", lambda belief, position: None)
    most_uncertain = picks(6)
    assert most_uncertain[0] == picked[0]
    assert apart(picked) > apart(most_uncertain)


@pytest.mark.parametrize("goal", ["reward", "front"])
@pytest.mark.parametrize("seed", range(3))
def test_picks_among_a_few_are_those_among_all(
    kind: type[Modelled], goal: Goal, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, history = begun(kind, seed, goal=goal, with_starts=False), History()
    for episode in range(1, 5):
        monkeypatch.setattr(strategy, "looked", len(ALL))
        among_all = strategy.ask(episode, 6, ALL, history)
        for looked in (2, 12):
            monkeypatch.setattr(strategy, "looked", looked)
            found = strategy.ask(episode, 6, ALL, history)
            assert [p.index for p in found] == [p.index for p in among_all]
        history = observed(history, episode, among_all)


def test_before_it_knows_a_loss_most_of_its_picks_are_by_the_start(kind: type[Modelled]) -> None:
    problem, strategy = benchmark_problem(), begun(kind)
    best = sorted(ALL, key=lambda i: (-problem.reward_of(i, problem.starts[i]), i))[:5]
    proposals = strategy.ask(1, 6, ALL, History())
    assert [p.index for p in proposals if p.source == "reading"] == best
    assert [p.source for p in proposals].count("random") == 1


def test_where_nothing_was_read_half_of_the_first_picks_are_by_size(kind: type[Modelled]) -> None:
    facts = benchmark_problem().facts
    within = [i for i in ALL if facts[i].latency_ratio <= 0.4]

    def size(index: int) -> float:
        state = BENCHMARK_SPACE[index]
        return state.layers * state.hidden * (state.intermediate * state.heads) ** (1 / 6)

    strategy = begun(kind, goal="limit", with_starts=False)
    strategy.begin(replace(strategy.problem, reward=lambda loss, ratio: 1 - loss))
    proposals = strategy.ask(1, 6, within, History())
    assert [p.source for p in proposals] == ["size"] * 3 + ["random"] * 3
    largest = sorted(map(size, within), reverse=True)[:3]
    assert [size(p.index) for p in proposals[:3]] == pytest.approx(largest)
    assert {p.predicted_reward for p in proposals} == {None}


def test_first_picks_by_size_for_a_front_are_of_every_latency(kind: type[Modelled]) -> None:
    facts = benchmark_problem().facts
    proposals = begun(kind, goal="front", with_starts=False).ask(1, 12, ALL, History())
    ratios = [facts[p.index].latency_ratio for p in proposals if p.source == "size"]
    third = np.quantile([one.latency_ratio for one in facts], [1 / 3, 2 / 3])
    assert set(np.searchsorted(third, ratios)) == {0, 1, 2}


def test_first_picks_by_size_for_a_reward_are_from_the_largest_to_the_fastest(
    kind: type[Modelled],
) -> None:
    """How much the smallest loses is not known, and that decides which of them a price favours."""
    facts = benchmark_problem().facts
    strategy = begun(kind, with_starts=False)
    proposals = strategy.ask(1, 12, ALL, History())
    by_size = [p.index for p in proposals if p.source == "size"]
    assert [p.source for p in proposals] == ["size"] * 6 + ["random"] * 6
    assert facts[by_size[-1]].latency_ratio == min(one.latency_ratio for one in facts)
    largest = BENCHMARK_SPACE[by_size[0]]
    assert largest.layers == max(BENCHMARK_SPACE.layers)
    assert largest.hidden == max(BENCHMARK_SPACE.hidden)
    assert len(strategy.ask(1, 1, ALL, History())) == 1
    assert [p.source for p in strategy.ask(1, 2, ALL, History())] == ["size"] * 2


def test_first_picks_that_are_drawn_lie_apart_from_all_others(kind: type[Modelled]) -> None:
    strategy = begun(kind, goal="front", with_starts=False)
    proposals = strategy.ask(1, 12, ALL, History())
    by_size = [p.index for p in proposals if p.source == "size"]
    rest = [i for i in ALL if i not in by_size]

    def nearest(others: list[int]) -> float:
        apart = cdist(strategy.features[others], strategy.features[by_size + others])
        return float(np.where(apart > 0, apart, np.inf).min(axis=1).mean())

    at_random = [draw(np.random.default_rng(seed), rest, 6) for seed in range(100)]
    drawn = [p.index for p in proposals if p.source == "random"]
    assert nearest(drawn) > np.quantile([nearest(others) for others in at_random], 0.9)


def test_size_stands_in_for_starts_that_are_not_known(kind: type[Modelled]) -> None:
    strategy = begun(kind, with_starts=False)
    size = losses_by_size(strategy.problem, ALL)
    last = strategy.features[:, strategy.groups[-1]]
    assert last.shape == (len(ALL), 1)
    assert last[:, 0] == pytest.approx((size - size.mean()) / size.std())
    assert begun(kind).features.shape == strategy.features.shape


def test_states_of_one_size_are_proposed(kind: type[Modelled]) -> None:
    first = BENCHMARK_SPACE[0]
    alike = [
        i
        for i in ALL
        if replace(BENCHMARK_SPACE[i], heads=first.heads, activation=first.activation) == first
    ][:2]
    assert len(alike) == 2
    proposals = begun(kind, with_starts=False).ask(1, 4, alike, History())
    assert {p.index for p in proposals} == set(alike)


def test_failures_say_nothing_of_the_loss(kind: type[Modelled]) -> None:
    failed = tuple(Observation(1, i, 0.0, failed=True) for i in range(8))
    proposals = begun(kind).ask(2, 4, ALL, History((failed,)))
    assert [p.source for p in proposals] == ["reading"] * 3 + ["random"]
    assert not {p.index for p in proposals} & set(range(8))


def test_a_foretold_loss_is_learned_from_and_covers_nothing(kind: type[Modelled]) -> None:
    """With it the front would be all but full, and its state's neighbours be worth nothing."""
    strategy = begun(kind, goal="front", with_starts=False)
    told = observed(History(), 1, strategy.ask(1, 8, ALL, History()))
    free = next(i for i in ALL if i not in told.indices)
    low = Observation(2, free, 1.0, loss=0.0, stopped=True)
    after = [
        strategy.ask(3, 4, ALL, History((*told.episodes, (one,))))
        for one in (low, replace(low, stopped=False), replace(low, loss=0.9))
    ]
    picks = [[p.index for p in proposals] for proposals in after]
    assert picks[0] != picks[1]  # it covers nothing
    assert after[0] != after[2]  # and is learned from: at least what is predicted differs


def test_a_start_that_some_states_lack_is_left_out(kind: type[Modelled]) -> None:
    problem = benchmark_problem()
    some = replace(problem, starts={0: problem.starts[0]})
    with_some, without = (kind(spec(kind), BENCHMARK_SPACE, 0) for _ in range(2))
    with_some.begin(some)
    without.begin(benchmark_problem(with_starts=False))
    history = observed(History(), 1, without.ask(1, 6, ALL, History()))
    assert with_some.ask(2, 6, ALL, history) == without.ask(2, 6, ALL, history)
    assert begun(kind).ask(2, 6, ALL, history) != without.ask(2, 6, ALL, history)


def test_a_space_of_one_state_is_proposed_once(kind: type[Modelled]) -> None:
    axes = {"layers": [3], "heads": [12], "hidden": [384], "intermediate": [768]}
    space = SearchSpace.from_axes({**axes, "activation": ["gelu"]})
    strategy = kind(spec(kind), space, 0)
    strategy.begin(benchmark_problem(space))
    assert [p.index for p in strategy.ask(1, 6, [0], History())] == [0]
    assert strategy.ask(2, 6, [0], History(((Observation(1, 0, 0.5, loss=0.5),),))) == []


def test_equal_losses_are_no_trouble(kind: type[Modelled]) -> None:
    told = tuple(Observation(1, i, 0.5, loss=0.5) for i in range(8))
    strategy = begun(kind)
    strategy.tell(1, History((told,)))
    proposals = strategy.ask(2, 6, ALL, History((told,)))
    assert len({p.index for p in proposals}) == 6

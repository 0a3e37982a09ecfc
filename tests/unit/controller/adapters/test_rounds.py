from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.adapters.rounds import Rounds, StudentSearch
from kdnas.architecture import Architecture
from kdnas.errors import SearchSpaceError, SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_losses,
    benchmark_ms,
    benchmark_params,
    benchmark_problem,
    benchmark_reward,
)

MakeSearch = Callable[..., StudentSearch]


class Spy:
    """Proposes allowed states from the last one down, and keeps what it was told."""

    name = "spy"
    made: Spy

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        self.asked: list[tuple[int, int, list[int]]] = []
        self.history = History()
        Spy.made = self

    def begin(self, problem: SearchProblem) -> None:
        self.problem = problem

    def epsilon(self, episode: int) -> None:
        return None

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        self.asked.append((episode, count, list(allowed)))
        return [Proposal(index, "spy") for index in sorted(allowed)[-count:]]

    def tell(self, episode: int, history: History) -> None:
        assert len(history.episodes) == episode
        self.history = history

    def dump(self) -> bytes:
        return b""

    def load(self, state: bytes) -> None:
        pass


@pytest.fixture
def spied(make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    monkeypatch.setattr("controller.adapters.rounds.build_strategy", Spy)
    return Rounds(make_search())


def loss_of(index: int) -> float:
    return benchmark_losses(BENCHMARK_SPACE[index]).relative


def test_a_strategy_is_told_what_the_loop_would_tell_it(make_search: MakeSearch) -> None:
    search = make_search()
    assert [search.problem.facts, search.problem.goal] == [
        benchmark_problem().facts,
        benchmark_problem().goal,
    ]
    assert search.problem.reward_of(5, loss_of(5)) == benchmark_reward(BENCHMARK_SPACE[5])
    limited = make_search(goal="limit", limits={"max_latency_ratio": 0.3})
    assert limited.problem.goal == "limit"
    assert limited.problem.reward_of(5, 0.25) == 0.75


def test_an_episode_closes_when_all_its_states_have_come_to_something(spied: Rounds) -> None:
    assert spied.ask() == [92, 93, 94, 95] == spied.ask()
    for index in (94, 92, 95):
        spied.tell(index, loss_of(index))
    assert spied.ask() == [93]
    assert not Spy.made.history.episodes
    spied.tell(93, None)
    assert spied.ask() == [88, 89, 90, 91]
    [told] = Spy.made.history.episodes
    assert [o.index for o in told] == [92, 93, 94, 95]  # whatever ended first
    assert [o.failed for o in told] == [False, True, False, False]
    assert [o.loss for o in told] == [loss_of(92), None, loss_of(94), loss_of(95)]
    assert told[1].reward == min(o.reward for o in told)
    assert told[0].reward == pytest.approx(benchmark_reward(BENCHMARK_SPACE[92]))
    assert [(number, count, len(of)) for number, count, of in Spy.made.asked] == [
        (1, 4, 96),
        (2, 4, 92),
    ]


def test_what_is_known_before_the_first_question_is_an_episode_of_its_own(spied: Rounds) -> None:
    spied.tell(95, loss_of(95))
    spied.tell(7, math.nan)
    assert spied.ask() == [91, 92, 93, 94]
    [told] = Spy.made.history.episodes
    assert [(o.index, o.failed) for o in told] == [(95, False), (7, True)]


def test_states_that_were_not_asked_for_count_in_the_open_episode(spied: Rounds) -> None:
    for index in (*spied.ask(), 3):
        spied.tell(index, loss_of(index))
    spied.ask()
    assert [o.index for o in Spy.made.history.episodes[0]] == [92, 93, 94, 95, 3]


def test_the_first_loss_counts_and_a_failure_until_its_episode_ends(spied: Rounds) -> None:
    spied.ask()
    spied.tell(92, None)
    spied.tell(92, 0.25)
    spied.tell(92, 0.75)
    spied.tell(93, None)
    for index in spied.ask():
        spied.tell(index, 0.5)
    spied.ask()
    spied.tell(93, 0.25)
    for index in spied.ask():
        spied.tell(index, 0.5)
    spied.ask()
    first, second = Spy.made.history.episodes
    assert [(o.index, o.loss) for o in first[:2]] == [(92, 0.25), (93, None)]
    assert 93 not in [o.index for o in second]


@pytest.mark.parametrize("variant", ["once", "paper"])
def test_all_allowed_states_are_proposed_once_and_then_none(
    make_search: MakeSearch, variant: str
) -> None:
    controller = {"strategy": "controller", "variant": variant, "candidates": 4}
    search = make_search(controller=controller, limits={"max_latency_ratio": 0.2})
    rounds, seen = Rounds(search), []
    while waiting := rounds.ask():
        seen.append(waiting[0])
        rounds.tell(waiting[0], loss_of(waiting[0]))
    assert sorted(seen) == search.allowed
    assert not rounds.untold
    assert len(seen) < len(BENCHMARK_SPACE)


def test_limits_that_leave_no_state_are_refused(make_search: MakeSearch) -> None:
    with pytest.raises(SpecError, match=r"max_latency_ms is 0\.0001 and the smallest"):
        Rounds(make_search(limits={"max_latency_ms": 1e-4}))


def test_a_strategy_that_breaks_its_contract_is_refused(
    spied: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spy, "ask", lambda *_: [Proposal(999, "spy")])
    with pytest.raises(SpecError, match="'spy' proposed 1 states"):
        spied.ask()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"latency_ms": {}}, r"latency_ms has no figure of 1,2,96,192,gelu; give"),
        ({"latency_ms": lambda _: 0.0}, r"latency_ms of 1,2,96,192,gelu is 0\.0; give a number"),
        ({"params_millions": lambda _: math.inf}, "params_millions of .* is inf"),
        ({"teacher_ms": -1}, "teacher_ms is -1; give a number above 0"),
    ],
)
def test_figures_are_checked(
    make_search: MakeSearch, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        Rounds(replace(make_search(), **changed))


def test_figures_may_be_tables(make_search: MakeSearch) -> None:
    states = BENCHMARK_SPACE.states
    tables = replace(
        make_search(),
        latency_ms={state: benchmark_ms(state) for state in states},
        params_millions={state: benchmark_params(state) for state in states},
    )
    assert tables.problem.facts == make_search().problem.facts


def test_starts_are_told(make_search: MakeSearch) -> None:
    search = replace(make_search(), starts={BENCHMARK_SPACE[3]: 0.5})
    assert search.problem.starts == {3: 0.5}
    with pytest.raises(SpecError, match="needs the loss with which every state starts"):
        Rounds(replace(make_search("reading-only"), starts={BENCHMARK_SPACE[3]: 0.5}))
    with pytest.raises(SearchSpaceError, match="layers 5 is not in"):
        Rounds(replace(make_search(), starts={Architecture(5, 2, 96, 192): 0.5}))


def test_parameters_that_are_no_state(make_search: MakeSearch) -> None:
    search = make_search()
    params = search.params_of(9)
    assert search.index_of({**params, "rate": 0.1}) == 9
    assert search.index_of({**params, "heads": 5}) is None
    assert search.index_of({**params, "layers": 5}) is None
    assert search.index_of({"layers": 1}) is None

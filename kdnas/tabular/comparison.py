"""Strategies side by side on a surface: each with many seeds, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cached_property
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from kdnas.errors import SpecError
from kdnas.records import fingerprint
from kdnas.search.limits import allowed_states, state_facts
from kdnas.search.protocols import StrategyFactory
from kdnas.specs.search import ControllerSpec, LimitsSpec, RewardSpec
from kdnas.tabular.measures import (
    Interval,
    goal_states,
    median_interval,
    paired_tests,
    regret,
    trainings_to,
)
from kdnas.tabular.replay import Replay, replay, true_rewards
from kdnas.tabular.surface import Surface


@dataclass(frozen=True)
class Question:
    """What strategies are compared on.

    Attributes:
        surface: the states.
        reward: what is wanted.
        limits: which states may be proposed.
        seeds: 0 to this number, less one.
        budgets: trainings after which they are looked at, rising.
        candidates: of an episode.
    """

    surface: Surface
    reward: RewardSpec
    limits: LimitsSpec
    seeds: int
    budgets: tuple[int, ...]
    candidates: int

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise SpecError(f"seeds is {self.seeds}; give at least 1")
        rising = sorted(set(self.budgets))
        if not rising or list(self.budgets) != rising or rising[0] < 1:
            raise SpecError(
                f"budgets are {list(self.budgets)}; give numbers of trainings from 1 on, rising"
            )

    @cached_property
    def allowed(self) -> list[int]:
        """Indices of the states that may be proposed.

        Raises:
            SpecError: no state is within the limits.
        """
        surface = self.surface
        sizes = dict(zip(surface.space.states, surface.params_millions, strict=True))
        facts = state_facts(surface.space, surface.latencies, sizes.__getitem__)
        return allowed_states(facts, self.limits)

    @cached_property
    def truth(self) -> list[float]:
        """The reward of every state with its true loss."""
        return true_rewards(self.surface, self.reward)

    @property
    def fingerprint(self) -> str:
        """Names what decides the replays, but for their strategies and seeds."""
        surface = self.surface
        shown = [
            surface.name, surface.space.fingerprint, [list(loss) for loss in surface.losses],
            sorted(surface.starts.items()), list(surface.latency_ms), surface.teacher_ms,
        ]  # fmt: skip
        asked = [self.reward.to_json(), self.limits.to_json(), self.candidates, self.budgets[-1]]
        return fingerprint([shown, asked])

    def controller(self, spec: ControllerSpec) -> ControllerSpec:
        """The strategy of a spec with as many episodes as the largest budget takes."""
        episodes = -(-self.budgets[-1] // self.candidates)
        return spec.model_copy(update={"episodes": episodes, "candidates": self.candidates})


@dataclass(frozen=True, slots=True)
class Standing:
    """What a strategy is worth.

    Attributes:
        name: of the strategy.
        regrets: by budget: the median over the seeds, with its interval.
        trainings: until a state of the goal was trained.
        solved: share of the seeds that came so far.
        p_regrets: by budget: of the paired test against the reference; none of itself.
        p_trainings: likewise of the trainings.
    """

    name: str
    regrets: tuple[Interval, ...]
    trainings: Interval
    solved: float
    p_regrets: tuple[float, ...] | None
    p_trainings: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; null stands for infinitely many."""
        return {
            **asdict(self),
            "regrets": [list(one) for one in self.regrets],
            "trainings": [None if math.isinf(n) else n for n in self.trainings],
        }


def run_replays(
    question: Question,
    strategies: Mapping[str, ControllerSpec],
    factory: StrategyFactory,
    known: Sequence[Replay] = (),
    on_replay: Callable[[Replay], None] = lambda _: None,
    workers: int = 1,
) -> list[Replay]:
    """Replay every strategy with every seed.

    Args:
        question: on what.
        strategies: name → its spec.
        factory: builds a strategy; it must be known by its module where there are several workers.
        known: replays of the same question that need not be run again.
        on_replay: is told each new one as it ends.
        workers: processes.

    Raises:
        SpecError: a strategy cannot be built, or needs what the surface lacks.
    """
    found = {(one.strategy, one.seed): one for one in known}
    wanted = [(name, seed) for name in strategies for seed in range(question.seeds)]
    left = [pair for pair in wanted if pair not in found]
    _ = question.allowed  # refuses limits that no state meets, before any process starts
    work = [(name, question.controller(strategies[name]), seed) for name, seed in left]
    for done in _played(question, work, factory, min(workers, len(work))):
        found[done.strategy, done.seed] = done
        on_replay(done)
    return [found[pair] for pair in wanted]


def _replayed(
    question: Question, name: str, controller: ControllerSpec, seed: int, factory: StrategyFactory
) -> Replay:
    done = replay(question.surface, controller, question.reward, question.limits, seed, factory)
    most = question.budgets[-1]  # an episode may go beyond it
    return Replay(name, seed, done.order[:most], done.rewards[:most])


def _played(
    question: Question,
    work: Sequence[tuple[str, ControllerSpec, int]],
    factory: StrategyFactory,
    workers: int,
) -> Iterator[Replay]:
    """Run replays in this process or in others; each is handed out as it ends."""
    if workers <= 1:
        for one in work:
            yield _replayed(question, *one, factory)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _take_one_thread)
    try:
        futures = [pool.submit(_replayed, question, *one, factory) for one in work]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _take_one_thread() -> None:
    """Keep the processes of a pool from taking each other's cores."""
    threadpool_limits(1)


def standings(question: Question, replays: Sequence[Replay], reference: str) -> list[Standing]:
    """Sum up replays, a strategy a row, in the order in which they first appear.

    Raises:
        SpecError: the reference is none of them.
    """
    by_name: dict[str, list[Replay]] = {}
    for one in sorted(replays, key=lambda one: one.seed):
        by_name.setdefault(one.strategy, []).append(one)
    order = list(dict.fromkeys(one.strategy for one in replays))
    if reference not in by_name:
        raise SpecError(f"reference {reference!r} is none of {', '.join(order)}; name one of them")
    truth, allowed = question.truth, question.allowed
    goal = goal_states(truth, allowed)
    needed = {name: [trainings_to(one, goal) for one in by_name[name]] for name in order}
    lost = {
        budget: {
            name: [regret(one, truth, allowed, budget) for one in by_name[name]] for name in order
        }
        for budget in question.budgets
    }
    # Who never got there needed more than anybody: one more than the largest budget, for ranks.
    most = question.budgets[-1] + 1
    ranks = {name: [min(n, most) for n in values] for name, values in needed.items()}
    p_lost = {budget: paired_tests(lost[budget], reference) for budget in question.budgets}
    p_needed = paired_tests(ranks, reference)
    return [
        Standing(
            name,
            tuple(median_interval(lost[budget][name]) for budget in question.budgets),
            median_interval(needed[name]),
            sum(n < most for n in needed[name]) / len(needed[name]),
            None
            if name == reference
            else tuple(p_lost[budget][name] for budget in question.budgets),
            p_needed.get(name),
        )
        for name in order
    ]

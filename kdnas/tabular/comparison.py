"""Strategies side by side on a surface: each with many seeds, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from typing import Any, Final

from threadpoolctl import threadpool_limits

from kdnas.allocator import keep_freed_memory
from kdnas.child_process import end_with_parent
from kdnas.errors import SpecError
from kdnas.records import fingerprint
from kdnas.search.limits import allowed_states, state_facts
from kdnas.search.protocols import StrategyFactory
from kdnas.specs.search import ControllerSpec, SearchSpec
from kdnas.tabular.judge import Judge
from kdnas.tabular.measures import Interval, median_interval, paired_tests, ratio_interval
from kdnas.tabular.replay import Replay, replay
from kdnas.tabular.surface import Surface

LATENCY_RATIOS: Final = (0.1, 0.2, 0.4)
"""Latencies, as shares of the teacher's, under which the best loss is told."""
NUM_POINTS: Final = 25
"""Numbers of trainings of a curve, at most."""


@dataclass(frozen=True)
class Question:
    """What strategies are compared on.

    Attributes:
        surface: the states.
        spec: with goal, reward and limits of the searches.
        seeds: 0 to this number, less one.
        budgets: trainings after which they are looked at, rising.
        candidates: of an episode.
    """

    surface: Surface
    spec: SearchSpec
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
        unread = [step for step in self.spec.proxy.rungs if step not in self.surface.readings]
        if unread:
            known = ", ".join(map(str, self.surface.readings)) or "none"
            raise SpecError(
                f"not every training of {self.surface.name} was read after step {unread[0]}, where "
                f"a rung is asked for; take of these: {known}"
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
        return allowed_states(facts, self.spec.limits)

    @cached_property
    def judge(self) -> Judge:
        """Who values the replays."""
        return Judge(self.surface, self.spec, self.allowed)

    @property
    def fingerprint(self) -> str:
        """Names what decides the replays, but for their strategies and seeds."""
        surface = self.surface
        shown = [
            surface.name, surface.space.fingerprint, [list(loss) for loss in surface.losses],
            sorted(surface.starts.items()), list(surface.latency_ms), surface.teacher_ms,
        ]  # fmt: skip
        spec = self.spec
        asked: list[Any] = [
            spec.goal, spec.reward.to_json(), spec.limits.to_json(), self.candidates,
            self.budgets[-1],
        ]  # fmt: skip
        if not surface.knows_sizes:
            asked.append("sizes of layers")
        rungs = spec.proxy.rungs
        if rungs:
            read = [[list(losses) for losses in surface.readings[step]] for step in rungs]
            asked += [list(rungs), spec.proxy.keep, read]
        return fingerprint([shown, asked])

    def search(self, strategy: ControllerSpec, seed: int) -> SearchSpec:
        """The search of a strategy with as many episodes as the largest budget takes."""
        episodes = -(-self.budgets[-1] // self.candidates)
        size = {"episodes": episodes, "candidates": self.candidates}
        controller = strategy.model_copy(update=size)
        return self.spec.model_copy(update={"controller": controller, "seed": seed})


@dataclass(frozen=True, slots=True)
class Standing:
    """What a strategy is worth.

    Attributes:
        name: of the strategy.
        regrets: by budget: what is missing in reward, or in hypervolume with goal ``front``; the
            median over the seeds, with its interval.
        trainings: until the problem was solved.
        times_reference: how many times as many these are as the reference's; none of itself.
        solved: share of the seeds that came so far.
        saved: share of the steps of all trainings that rungs have saved.
        covered: by budget: share of the hypervolume of the states that may be taken.
        best_losses: by budget: true losses under :data:`LATENCY_RATIOS` of the teacher's latency.
        p_regrets: by budget: of the paired test against the reference; none of itself.
        p_trainings: likewise of the trainings.
    """

    name: str
    regrets: tuple[Interval, ...]
    trainings: Interval
    times_reference: Interval | None
    solved: float
    saved: Interval
    covered: tuple[Interval, ...]
    best_losses: tuple[tuple[Interval, ...], ...]
    p_regrets: tuple[float, ...] | None
    p_trainings: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; null stands for infinitely many."""
        return {
            **asdict(self),
            "regrets": [_plain(one) for one in self.regrets],
            "trainings": _plain(self.trainings),
            "times_reference": self.times_reference and _plain(self.times_reference),
            "saved": _plain(self.saved),
            "covered": [_plain(one) for one in self.covered],
            "best_losses": [[_plain(one) for one in row] for row in self.best_losses],
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """How the regret of a strategy falls.

    Attributes:
        name: of the strategy.
        trainings: after which it was looked at, rising.
        regrets: by number of trainings, as in :class:`Standing`.
    """

    name: str
    trainings: tuple[int, ...]
    regrets: tuple[Interval, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "regrets": [_plain(one) for one in self.regrets]}


def _plain(interval: Interval) -> list[float | None]:
    return [None if math.isinf(value) else value for value in interval]


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
        SpecError: a strategy cannot be built, or needs what the surface lacks, or no state that may
            be taken is worth anything.
    """
    found = {(one.strategy, one.seed): one for one in known}
    wanted = [(name, seed) for name in strategies for seed in range(question.seeds)]
    left = [pair for pair in wanted if pair not in found]
    _ = question.judge.volume  # refuses what nobody can find, before any process starts
    work = [(name, question.search(strategies[name], seed)) for name, seed in left]
    for done in _played(question, work, factory, min(workers, len(work))):
        found[done.strategy, done.seed] = done
        on_replay(done)
    return [found[pair] for pair in wanted]


def _replayed(question: Question, name: str, spec: SearchSpec, factory: StrategyFactory) -> Replay:
    done = replay(question.surface, spec, factory)
    # An episode may go beyond the largest budget.
    return replace(done, strategy=name, order=done.order[: question.budgets[-1]])


def _played(
    question: Question,
    work: Sequence[tuple[str, SearchSpec]],
    factory: StrategyFactory,
    workers: int,
) -> Iterator[Replay]:
    """Run replays in this process or in others; each is handed out as it ends."""
    if workers <= 1:
        for one in work:
            yield _replayed(question, *one, factory)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _prepare)
    try:
        futures = [pool.submit(_replayed, question, *one, factory) for one in work]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    """Let a process of a pool keep to one core, keep its memory, and end with its parent."""
    threadpool_limits(1)
    keep_freed_memory()
    end_with_parent()


def curves(question: Question, replays: Sequence[Replay]) -> list[Curve]:
    """Follow each strategy's regret over its trainings, at distances that grow with them."""
    most = question.budgets[-1]
    points = sorted({round(most ** (i / (NUM_POINTS - 1))) for i in range(NUM_POINTS)})
    return [
        Curve(
            name,
            tuple(points),
            tuple(median_interval([question.judge.regret(one, n) for one in own]) for n in points),
        )
        for name, own in _by_strategy(replays).items()
    ]


def _by_strategy(replays: Sequence[Replay]) -> dict[str, list[Replay]]:
    """The replays of each strategy by seed, in the order in which strategies first appear."""
    found: dict[str, list[Replay]] = {one.strategy: [] for one in replays}
    for one in sorted(replays, key=lambda one: one.seed):
        found[one.strategy].append(one)
    return found


def standings(question: Question, replays: Sequence[Replay], reference: str) -> list[Standing]:
    """Sum up replays, a strategy a row, in the order in which they first appear.

    Raises:
        SpecError: the reference is none of them.
    """
    by_name = _by_strategy(replays)
    order = list(by_name)
    if reference not in by_name:
        raise SpecError(f"reference {reference!r} is none of {', '.join(order)}; name one of them")
    judge = question.judge
    needed = {name: [judge.trainings(one) for one in by_name[name]] for name in order}
    lost = {
        budget: {name: [judge.regret(one, budget) for one in by_name[name]] for name in order}
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
            None if name == reference else ratio_interval(needed[name], needed[reference]),
            sum(n < most for n in needed[name]) / len(needed[name]),
            median_interval([one.saved for one in by_name[name]]),
            tuple(
                median_interval([judge.covered(one, budget) for one in by_name[name]])
                for budget in question.budgets
            ),
            tuple(
                tuple(
                    median_interval([judge.best_loss(one, budget, ratio) for one in by_name[name]])
                    for ratio in LATENCY_RATIOS
                )
                for budget in question.budgets
            ),
            None
            if name == reference
            else tuple(p_lost[budget][name] for budget in question.budgets),
            p_needed.get(name),
        )
        for name in order
    ]

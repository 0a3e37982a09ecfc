from __future__ import annotations

import errno
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from kdnas.architecture import Architecture
from kdnas.errors import (
    BackendError,
    DatabaseError,
    OutOfReachError,
    SpecError,
    StoreError,
    TrainingError,
)
from kdnas.records import (
    BackendEvent,
    Candidate,
    CandidateFinished,
    Episode,
    GroupProgress,
    Losses,
    MiniKDRequest,
    MiniKDResult,
    Proposal,
)
from kdnas.search.loop import SearchSetup, run_search
from kdnas.search.memory_journal import MemoryJournal
from kdnas.search.progress import (
    CandidateDone,
    EpisodeDone,
    EpisodeStarted,
    Progress,
    SearchDone,
    SearchStarted,
)
from kdnas.search.protocols import Backend, History, Journal, SearchProblem
from kdnas.search.reward import RewardFunction, ranking
from kdnas.search.rungs import steps_saved
from kdnas.specs.search import SearchSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    TEACHER,
    benchmark_latencies,
    benchmark_losses,
    benchmark_params,
    benchmark_reward,
    benchmark_start,
)
from kdnas.testing.fake_backend import FakeBackend

SPEC = {"controller": {"episodes": 3, "candidates": 5}}
NAMES = [str(state) for state in BENCHMARK_SPACE.states]


class CountingStrategy:
    """Draws new states; its state counts the episodes it was told and hangs on their rewards."""

    name = "counting"

    def __init__(self) -> None:
        self.told = 0
        self.total = 0.0
        self.seen: list[History] = []

    def begin(self, problem: SearchProblem) -> None:
        self.problem = problem

    def epsilon(self, episode: int) -> float | None:
        return 1 / episode

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        assert self.told == episode - 1 == len(history.episodes)
        pool = [i for i in allowed if i not in history.indices]
        rng = np.random.default_rng([episode, int(self.total * 1e6)])
        picks = rng.permutation(len(pool))[:count]
        return [Proposal(pool[i], "random", self.total) for i in picks]

    def tell(self, episode: int, history: History) -> float | None:
        assert len(history.episodes) == episode
        self.told += 1
        self.total += sum(o.reward for o in history.episodes[-1])
        self.seen.append(history)
        return self.total

    def dump(self) -> bytes:
        return f"{self.told} {self.total!r}".encode()

    def load(self, state: bytes) -> None:
        told, total = state.decode().split()
        self.told, self.total = int(told), float(total)


class RepeatingStrategy(CountingStrategy):
    """Proposes the same states in every episode, as far as they are allowed."""

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        return [Proposal(i, "random") for i in allowed[:count]]


@dataclass
class World:
    """A journal with one search, and what is needed to run it."""

    spec: dict[str, Any] = field(default_factory=lambda: SPEC)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    events: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.new_search()

    def new_search(self) -> None:
        spec = SearchSpec.read(self.spec, "test")
        self.search_id = self.journal.create_search(spec.to_json()).id
        self.setup = SearchSetup(
            search_id=self.search_id,
            spec=spec,
            space=BENCHMARK_SPACE,
            latencies=benchmark_latencies(),
            params_millions=benchmark_params,
            context="context",
            teacher=TEACHER,
        )

    def run(
        self,
        backend: Backend | None = None,
        journal: Journal | None = None,
        strategy: CountingStrategy | None = None,
        **options: Any,
    ) -> str:
        self.journal.set_status(self.search_id, "running")
        return run_search(
            self.setup,
            strategy or CountingStrategy(),
            backend or FakeBackend(),
            journal or self.journal,
            on_progress=self.events.append,
            **options,
        )

    @property
    def episodes(self) -> list[Episode]:
        return self.journal.episodes(self.search_id)

    @property
    def candidates(self) -> list[Candidate]:
        return [c for episode in self.episodes for c in episode.candidates]

    @property
    def status(self) -> tuple[str, str | None]:
        record = self.journal.get_search(self.search_id)
        return record.status, record.error

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that must not depend on interruptions."""
        rows = [
            (c.episode, c.position, c.index, c.predicted_reward, c.status, c.reward)
            for c in self.candidates
        ]
        best = [c.index for c in ranking(self.candidates)]
        bests = [(e.global_best, e.previous_best, e.controller_loss) for e in self.episodes]
        return rows, best, bests, self.journal.controller_state(self.search_id), self.status[0]


def events_of(world: World, kind: type[Any]) -> list[Any]:
    return [event for event in world.events if isinstance(event, kind)]


def test_a_search_from_end_to_end() -> None:
    world, backend = World(), FakeBackend()
    assert world.run(backend) == "succeeded"
    assert world.status == ("succeeded", None)
    assert [(e.number, e.finished, len(e.candidates)) for e in world.episodes] == [
        (n, True, 5) for n in (1, 2, 3)
    ]
    assert len(set(backend.trained)) == len(backend.trained) == 15
    for c in world.candidates:
        assert c.reward == pytest.approx(benchmark_reward(c.architecture), rel=1e-12)
        assert c.losses == benchmark_losses(c.architecture)
    first, second = world.episodes[:2]
    best = max(first.candidates, key=lambda c: c.reward or 0)
    assert (first.global_best, first.previous_best) == (None, None)
    assert (second.global_best, second.previous_best) == (best.index, best.index)
    assert backend.num_closed >= 1


def test_the_screen_is_told() -> None:
    world = World()
    ticks = iter(range(100_000))
    world.run(clock=lambda: float(next(ticks)))
    assert world.events[0] == SearchStarted(len(BENCHMARK_SPACE), len(BENCHMARK_SPACE), 3, 1)
    assert [e.number for e in events_of(world, EpisodeStarted)] == [1, 2, 3]
    assert len(events_of(world, CandidateDone)) == 15
    for done in events_of(world, EpisodeDone):
        assert (done.num_trained, len(done.predictions)) == (5, 5)
        assert 0 < done.students_per_hour <= 5 * 3600
        assert done.controller_loss is not None
    last = world.events[-1]
    assert isinstance(last, SearchDone)
    assert last.best == ranking(world.candidates)[0]


class Killed(BaseException):
    """Stands for a process that is gone: nothing may catch it."""


class DyingJournal:
    """Passes every call on, and dies before or after the k-th that writes."""

    def __init__(self, journal: MemoryJournal, at: int, after: bool) -> None:
        self._journal, self._left, self._after = journal, at, after

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._journal, name)

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            value = method(*args, **named)
            if self._left == 0:
                raise Killed
            return value

        return call


class DyingBackend(FakeBackend):
    """Dies before its k-th event."""

    def __init__(self, at: int, **options: Any) -> None:
        super().__init__(**options)
        self._left = at

    def run(self, requests: Sequence[MiniKDRequest], *more: Any) -> Iterator[BackendEvent]:
        for event in super().run(requests, *more):
            self._left -= 1
            if self._left == 0:
                raise Killed
            yield event


ODD = {"fail": frozenset(NAMES[::7]), "interrupt": frozenset(NAMES[::5])}


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("where", ["before", "after", "backend"])
def test_killed_anywhere_it_goes_on_as_if_nothing_happened(where: str, reuse: bool) -> None:
    spec = {**SPEC, "proxy": {"reuse": reuse}}
    undisturbed = World(spec)
    undisturbed.run(FakeBackend(**ODD))
    for at in range(1, 200):
        world = World(spec)
        first = DyingBackend(at if where == "backend" else 0, **ODD)
        journal = DyingJournal(world.journal, at if where != "backend" else 0, where == "after")
        try:
            world.run(first, journal)
        except Killed:
            killed = True
        else:
            killed = False
        stored = {str(c.architecture) for c in world.candidates if c.status == "succeeded"}
        second = FakeBackend(**ODD)
        if world.status[0] != "succeeded":
            assert world.run(second) == "succeeded"
        assert world.outcome == undisturbed.outcome, at
        assert not stored & set(second.trained), "a finished candidate was trained again"
        assert all(attempt.outcome for attempt in world.journal.attempts)
        if not killed:
            break
    assert not killed
    assert at > 25


def test_killed_again_and_again() -> None:
    undisturbed = World()
    undisturbed.run()
    world = World()
    for at in range(4, 40):
        try:
            world.run(journal=DyingJournal(world.journal, at, after=True))
        except Killed:
            continue
        break
    assert world.outcome == undisturbed.outcome


def test_losses_are_reused_across_searches() -> None:
    world = World()
    world.run()
    before = world.outcome
    world.new_search()
    backend = FakeBackend()
    world.run(backend)
    assert backend.trained == []
    assert all(c.reused and c.num_attempts == 0 for c in world.candidates)
    assert world.outcome == before
    assert events_of(world, EpisodeDone)[-1].students_per_hour is None


def test_a_start_is_kept_and_comes_back_with_reused_losses() -> None:
    world = World()
    world.run()
    first = {c.index: c.loss_start for c in world.candidates}
    assert first == {i: benchmark_start(BENCHMARK_SPACE[i]) for i in first}
    world.new_search()
    world.run()
    assert all(c.reused for c in world.candidates)
    assert {c.index: c.loss_start for c in world.candidates} == first


def test_a_start_that_is_no_number_counts_as_not_read() -> None:
    class WithoutStart(FakeBackend):
        def _result(self, request: MiniKDRequest) -> MiniKDResult:
            return replace(super()._result(request), loss_start=math.nan)

    world = World()
    assert world.run(WithoutStart()) == "succeeded"
    assert all(c.reward is not None and c.loss_start is None for c in world.candidates)


@pytest.mark.parametrize("output", [1.0, 1.031])
def test_who_has_not_learned_has_failed_also_when_looked_up(output: float) -> None:
    ruined = frozenset(NAMES[1::3])

    def losses(architecture: Architecture) -> Losses:
        found = benchmark_losses(architecture)
        return replace(found, output=output) if str(architecture) in ruined else found

    world, strategy = World(), CountingStrategy()
    world.run(FakeBackend(losses), strategy=strategy)
    before = world.candidates
    failed = [c for c in before if str(c.architecture) in ruined]
    assert 0 < len(failed) < len(before)
    for candidate in before:
        assert (candidate.status == "failed") == (candidate in failed)
        assert candidate.losses == losses(candidate.architecture)
        assert (candidate.reward is None) == (candidate in failed)
    assert {c.error for c in failed} == {
        f"has not learned: its held-out output loss is {output:.4g}, that of a student that "
        "ignores its input is 1; a smaller proxy.learning_rate than 0.0008 or more steps may help"
    }
    worst = min(c.reward for c in world.episodes[0].candidates if c.reward is not None)
    first = strategy.seen[0].episodes[0]
    assert any(o.failed for o in first)
    assert all(o.reward == worst for o in first if o.failed)

    world.new_search()
    backend = FakeBackend(losses)
    world.run(backend)
    assert backend.trained == []
    again = [(c.status, c.losses, c.reward, c.error) for c in world.candidates]
    assert again == [(c.status, c.losses, c.reward, c.error) for c in before]
    assert all(c.reused for c in world.candidates)


def test_another_context_or_reuse_off_trains_again() -> None:
    world = World()
    world.run()
    world.new_search()
    world.setup = replace(world.setup, context="another")
    backend = FakeBackend()
    world.run(backend)
    assert len(backend.trained) == 15

    world.spec = {**SPEC, "proxy": {"reuse": False}}
    world.new_search()
    backend = FakeBackend()
    world.run(backend)
    assert len(backend.trained) == 15


@pytest.mark.parametrize("reuse", [True, False])
def test_a_repeated_state_costs_nothing_and_a_failed_one_is_not_offered_again(reuse: bool) -> None:
    world = World({**SPEC, "proxy": {"reuse": reuse}})
    backend = FakeBackend(fail=frozenset(NAMES[:1]))
    world.run(backend, strategy=RepeatingStrategy())
    assert backend.trained == [NAMES[i] for i in (2, 1, 0, 4, 3, 5)]
    assert [[c.index for c in e.candidates] for e in world.episodes] == [
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5],
    ]
    assert all(c.reused for c in world.episodes[2].candidates)


def test_limits_keep_states_out() -> None:
    world = World({**SPEC, "limits": {"max_latency_ratio": 0.3, "max_params_millions": 1.0}})
    world.run()
    assert world.candidates
    assert all((c.latency_ratio or 9) <= 0.3 for c in world.candidates)
    assert all((c.params_millions or 9) <= 1.0 for c in world.candidates)
    assert world.events[0].num_allowed < len(BENCHMARK_SPACE)  # type: ignore[union-attr]


def test_limits_that_leave_nothing_fail_with_the_reason() -> None:
    world = World({**SPEC, "limits": {"max_latency_ms": 0.001}})
    with pytest.raises(SpecError, match=r"max_latency_ms is 0\.001 and the smallest value"):
        world.run()
    assert world.status[0] == "failed"
    assert world.episodes == []


def test_running_out_of_states_ends_early_and_well() -> None:
    world = World(
        {"controller": {"episodes": 50, "candidates": 7}, "limits": {"max_latency_ratio": 0.3}}
    )
    assert world.run() == "succeeded"
    num_allowed = world.events[0].num_allowed  # type: ignore[union-attr]
    assert len({c.index for c in world.candidates}) == len(world.candidates) == num_allowed
    assert len(world.episodes) < 50


def test_diverged_and_failed_candidates_have_no_reward() -> None:
    world, strategy = World(), CountingStrategy()
    world.run(
        FakeBackend(diverge=frozenset(NAMES[::3]), fail=frozenset(NAMES[1::3])), strategy=strategy
    )
    errors = {c.error for c in world.candidates if c.status == "failed"}
    assert any("losses are not finite (training inf" in (error or "") for error in errors)
    assert any("out of memory" in (error or "") for error in errors)
    assert all((c.status == "failed") == (c.reward is None) for c in world.candidates)
    assert all((c.status == "failed") == (c.losses is None) for c in world.candidates)
    told = [o for episode in strategy.seen[-1].episodes for o in episode]
    worst_first = min(o.reward for o in told[:5])
    assert all(o.reward == worst_first for o in told[:5] if o.failed)


def test_nothing_but_failures_is_a_failure() -> None:
    world = World()
    with pytest.raises(TrainingError, match="none of the 15 candidates"):
        world.run(FakeBackend(fail=frozenset(NAMES)))
    assert world.status[0] == "failed"


def test_lost_workers_fail_the_search_and_it_can_go_on() -> None:
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), FakeBackend(die_after=7)
    with pytest.raises(BackendError):
        world.run(backend)
    assert world.status == ("failed", "all workers are lost; start new ones and resume")
    assert backend.num_closed == 1
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


def test_a_full_disk_is_told_in_a_sentence() -> None:
    class OnAFullDisk(FakeBackend):
        def run(
            self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
        ) -> Iterator[BackendEvent]:
            raise OSError(errno.ENOSPC, "No space left on device")

    undisturbed = World()
    undisturbed.run()
    world = World()
    with pytest.raises(
        StoreError, match=r"^a file could not be written \(No space left on device\)"
    ):
        world.run(OnAFullDisk())
    assert world.status[0] == "failed"
    assert str(world.status[1]).endswith("KDNAS_HOME and where the result goes, and resume")
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


class Everything:
    def __contains__(self, _: object) -> bool:
        return True


@pytest.mark.parametrize("done_before", [0, 7])
def test_workers_that_die_with_whatever_they_do_leave_no_student_failed(done_before: int) -> None:
    undisturbed = World()
    undisturbed.run()
    world = World()
    if done_before:
        with pytest.raises(BackendError, match="all workers are lost"):
            world.run(FakeBackend(die_after=done_before))
    with pytest.raises(BackendError, match=r"the workers died with every one of the \d candidates"):
        world.run(FakeBackend(give_up=Everything()))
    assert world.status[0] == "failed"
    assert {one.status for one in world.candidates} <= {"proposed", "succeeded"}
    assert sum(one.status == "succeeded" for one in world.candidates) == done_before
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


def test_a_student_with_which_workers_die_has_failed_alone() -> None:
    undisturbed, world = World(), World()
    undisturbed.run()
    world.run(FakeBackend(give_up={str(undisturbed.candidates[0].architecture)}))
    assert [one.status for one in world.episodes[0].candidates] == [
        "failed",
        *["succeeded"] * (len(undisturbed.episodes[0].candidates) - 1),
    ]


def test_a_database_out_of_reach_leaves_the_status_alone() -> None:
    class Unreachable(MemoryJournal):
        def begin_episode(self, *args: Any) -> Episode:
            raise DatabaseError("the database does not answer; check KDNAS_DATABASE_URL")

    world = World(journal=Unreachable())
    with pytest.raises(DatabaseError):
        world.run()
    assert world.status[0] == "running"


@pytest.mark.parametrize("at", [1, 2, 4, 9, 14])
def test_a_pause_keeps_what_is_done_and_goes_on_identically(at: int) -> None:
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), FakeBackend()
    calls = iter(range(1, 1000))
    assert world.run(backend, should_stop=lambda: next(calls) >= at) == "paused"
    status, reason = world.status
    assert status == "paused"
    assert "on request" in (reason or "")
    assert all(attempt.outcome for attempt in world.journal.attempts)
    assert backend.num_closed == 1
    second = FakeBackend()
    assert world.run(second) == "succeeded"
    assert world.outcome == undisturbed.outcome
    assert not set(backend.trained) & set(second.trained)


class Watched(FakeBackend):
    """Says at each of its events, before it is told, which it is, and which there have been."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last: BackendEvent | None = None
        self.seen: set[type[BackendEvent]] = set()

    def run(self, requests: Sequence[MiniKDRequest], *more: Any) -> Iterator[BackendEvent]:
        for event in super().run(requests, *more):
            self.last = event
            self.seen.add(type(event))
            yield event


@pytest.mark.parametrize("kind", [GroupProgress, CandidateFinished])
def test_students_at_work_come_to_their_end_before_a_pause(kind: type[Any]) -> None:
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), Watched(group_size=2)
    assert world.run(backend, should_stop=lambda: kind in backend.seen) == "paused"
    assert len(backend.trained) == 2  # their group, of five in the episode
    assert [a.outcome for a in world.journal.attempts] == ["succeeded"] * 2
    second = FakeBackend()
    assert world.run(second) == "succeeded"
    assert world.outcome == undisturbed.outcome
    assert not set(backend.trained) & set(second.trained)


def test_students_at_work_are_lost_where_it_is_to_stop_at_once() -> None:
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), Watched(group_size=2)
    asked = {"should_stop": lambda: GroupProgress in backend.seen, "at_once": lambda: True}
    assert world.run(backend, **asked) == "paused"
    assert backend.trained == []
    assert [a.outcome for a in world.journal.attempts] == ["interrupted"] * 2
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


def test_students_that_have_made_no_step_are_not_waited_for() -> None:
    world, backend = World(), Watched(group_size=2)
    assert world.run(backend, should_stop=lambda: backend.last is not None) == "paused"
    assert backend.trained == []
    assert world.journal.attempts == []


def test_a_pause_that_is_taken_back_while_students_end_changes_nothing() -> None:
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), Watched(group_size=2)
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(isinstance(backend.last, GroupProgress))
        return asked[-1]

    assert world.run(backend, should_stop=should_stop) == "succeeded"
    assert any(asked)
    assert world.outcome == undisturbed.outcome
    assert all(a.outcome == "succeeded" for a in world.journal.attempts)


def test_a_pause_that_is_taken_back_after_the_last_student_goes_on_with_the_rest() -> None:
    """The backend has ended its run by then, since it was to begin with nobody."""
    undisturbed = World()
    undisturbed.run()
    world, backend = World(), Watched(group_size=2)
    asked: list[bool] = []

    def should_stop() -> bool:
        if len(backend.trained) == 2 and isinstance(backend.last, CandidateFinished):
            asked.append(True)
            return len(asked) == 1
        return False

    assert world.run(backend, should_stop=should_stop) == "succeeded"
    assert len(asked) > 1
    assert world.outcome == undisturbed.outcome


def test_a_search_that_is_given_back_stays_running_and_goes_on_identically() -> None:
    undisturbed = World()
    undisturbed.run()
    world = World()
    calls = iter(range(1, 1000))
    status = world.run(should_stop=lambda: next(calls) >= 4, stopped_status="running")
    assert status == "running" == world.status[0]
    assert all(attempt.outcome for attempt in world.journal.attempts)
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


def test_a_search_that_somebody_paused_before_it_began_is_left_alone() -> None:
    world, backend = World(), FakeBackend()
    world.journal.set_status(world.search_id, "paused")
    setup = world.setup
    assert run_search(setup, CountingStrategy(), backend, world.journal) == "paused"
    assert (backend.trained, backend.num_closed) == ([], 1)
    assert world.status[0] == "paused"


def test_a_failure_does_not_undo_a_cancellation() -> None:
    world = World()

    def cancel() -> bool:
        world.journal.set_status(world.search_id, "cancelled")
        raise BackendError("the workers gave up")

    with pytest.raises(BackendError):
        world.run(should_stop=cancel)
    assert world.status[0] == "cancelled"


def test_a_cluster_out_of_reach_leaves_the_status_to_whoever_tries_again() -> None:
    class Lost(FakeBackend):
        def run(self, requests: Sequence[MiniKDRequest], *more: Any) -> Iterator[BackendEvent]:
            yield from islice(super().run(requests, *more), 3)
            raise OutOfReachError("the cluster lost the node")

    undisturbed, world, backend = World(), World(), Lost()
    undisturbed.run()
    with pytest.raises(OutOfReachError):
        world.run(backend)
    assert (world.status, backend.num_closed) == (("running", None), 1)
    assert world.run() == "succeeded"
    assert world.outcome == undisturbed.outcome


def test_hours_run_out_and_count_anew() -> None:
    world = World({**SPEC, "limits": {"max_hours": 0.5}})
    now = iter(range(0, 10_000_000, 300))
    assert world.run(clock=lambda: float(next(now))) == "paused"
    assert "limits.max_hours (0.5) is used up" in (world.status[1] or "")
    assert world.run(clock=lambda: 0.0) == "succeeded"


def test_a_cancelled_search_stays_cancelled() -> None:
    world = World()
    done: list[int] = []

    def cancel() -> bool:
        done.append(1)
        if len(done) == 3:
            world.journal.set_status(world.search_id, "cancelled")
        return len(done) >= 3

    assert world.run(should_stop=cancel) == "cancelled"
    assert world.status[0] == "cancelled"


def test_the_teachers_own_architecture_is_marked() -> None:
    world = World({"controller": {"episodes": 1, "candidates": 5}})
    world.setup = replace(world.setup, teacher=BENCHMARK_SPACE[3])
    world.run(strategy=RepeatingStrategy())
    assert [c.note for c in world.candidates] == [None] * 3 + [
        "the teacher's own architecture",
        None,
    ]


def test_clipped_losses_are_noted() -> None:
    world = World({"controller": {"episodes": 1, "candidates": 1}})
    world.run(FakeBackend(lambda a: replace(benchmark_losses(a), relative=1.25)))
    assert world.candidates[0].note == "loss 1.25 counts as 1 in the reward"
    assert world.candidates[0].reward == 0.0


def test_a_strategy_that_breaks_its_contract_is_named() -> None:
    class Wrong(CountingStrategy):
        def ask(self, *args: Any) -> list[Proposal]:
            return [Proposal(-1, "random"), Proposal(2, "random"), Proposal(2, "random")]

    world = World()
    with pytest.raises(SpecError, match=r"'counting' proposed 3 states, 2 of.*\[-1\]"):
        world.run(strategy=Wrong())
    assert world.status[0] == "failed"


def test_a_backend_that_breaks_its_contract_is_named() -> None:
    class Short(FakeBackend):
        def run(self, requests: Sequence[MiniKDRequest], *more: Any) -> Iterator[BackendEvent]:
            return super().run(requests[1:], *more)

    class Foreign(FakeBackend):
        def run(self, requests: Sequence[MiniKDRequest], *more: Any) -> Iterator[BackendEvent]:
            return super().run([replace(requests[0], candidate_id="stranger")], *more)

    for backend, message in ((Short(), "without a result for 1 of 5"), (Foreign(), "stranger")):
        world = World()
        with pytest.raises(BackendError, match=message):
            world.run(backend)
        assert world.status[0] == "failed"


def test_the_journal_is_asked_once_an_episode_not_once_a_candidate() -> None:
    world = World({"controller": {"episodes": 4, "candidates": 10}})
    asked: list[str] = []

    class Counting(DyingJournal):
        def __getattr__(self, name: str) -> Callable[..., Any]:
            asked.append(name)
            return super().__getattr__(name)

    world.run(journal=Counting(world.journal, 0, after=False))
    assert asked.count("episodes") == 1
    assert asked.count("known_losses") == asked.count("begin_episode") == 4
    assert asked.count("get_search") == 1


def test_the_loop_loads_no_torch() -> None:
    code = (
        "import sys, kdnas.search.loop, kdnas.search.summary; "
        "print([m for m in ('torch', 'ray', 'sqlalchemy', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_strategy_is_told_what_is_known_and_the_loss_of_each_student() -> None:
    world, strategy = World(), CountingStrategy()
    starts = {3: 0.75}
    world.setup = replace(world.setup, starts=starts)
    world.run(strategy=strategy)
    problem = strategy.problem
    assert problem.space == BENCHMARK_SPACE
    assert problem.starts == starts
    assert len(problem.facts) == len(BENCHMARK_SPACE)
    for observation in strategy.seen[-1].episodes[-1]:
        loss = benchmark_losses(BENCHMARK_SPACE[observation.index]).relative
        assert observation.loss == loss
        assert problem.reward_of(observation.index, loss) == observation.reward


RUNGS = {
    "controller": {"episodes": 6, "candidates": 6},
    "proxy": {"steps": 10, "rungs": [3, 6], "keep": 4},
}


class DrawingStrategy(CountingStrategy):
    """Proposes what it would propose whatever the rewards are."""

    def tell(self, episode: int, history: History) -> float | None:
        super().tell(episode, history)
        self.total = 0.0
        return None


def noisy(architecture: Architecture) -> Losses:
    """Losses that a reading on the way foretells in part only."""
    found = benchmark_losses(architecture)
    off = 0.06 * math.sin(1e6 * found.relative)
    return replace(found, relative=found.relative + off)


@pytest.mark.parametrize("goal", ["reward", "limit", "front"])
def test_rungs_stop_students_that_are_not_wanted(goal: str) -> None:
    spec = {**RUNGS, "goal": goal, "limits": {"max_latency_ratio": 2}}
    world, whole, backend = World(spec), World({**spec, "proxy": {}}), FakeBackend()
    strategy = DrawingStrategy()
    assert world.run(backend, strategy=strategy) == "succeeded"
    whole.run(strategy=DrawingStrategy())
    assert [c.index for c in world.candidates] == [c.index for c in whole.candidates]
    stopped = [c for c in world.candidates if c.status == "stopped"]
    assert 4 <= len(stopped) <= 28
    assert min(c.episode for c in stopped) == 3  # the eight that it takes are there by then
    for candidate in stopped:
        assert (candidate.losses, candidate.reward, candidate.error) == (None, None, None)
        assert candidate.num_steps == candidate.readings[-1].step in {3, 6}
        assert f"stopped after {candidate.num_steps} of 10 steps: a loss" in str(candidate.note)
    rest = [c for c in world.candidates if c.status == "succeeded"]
    assert len(rest) + len(stopped) == len(world.candidates)
    assert all(len(c.readings) == 2 and c.num_steps == 10 for c in rest)
    assert [c.index for c in ranking(world.candidates)][:4] == [
        c.index for c in ranking(whole.candidates)
    ][:4] or goal == "front"
    made = sum(c.num_steps or 0 for c in world.candidates)
    assert steps_saved(world.candidates) == pytest.approx(1 - made / (10 * 36))
    assert steps_saved(whole.candidates) is None

    told = {o.index: o for episode in strategy.seen[-1].episodes for o in episode}
    for candidate in stopped:  # here a straight line foretells the final loss
        seen = told[candidate.index]
        assert seen.stopped
        assert not seen.failed
        assert seen.loss == pytest.approx(benchmark_losses(candidate.architecture).relative)
        ratio = world.setup.latencies.entries[str(candidate.architecture)].latency_ms
        assert seen.reward == pytest.approx(
            world_reward(world, seen.loss, ratio / world.setup.latencies.teacher_ms)
        )
    for number, history in enumerate(strategy.seen, 1):
        assert len(history.episodes) == number


def world_reward(world: World, loss: float | None, ratio: float) -> float:
    assert loss is not None
    return RewardFunction.from_spec(world.setup.spec.judged_by).of_loss(loss, ratio)


def test_what_was_stopped_is_told_anew_as_more_becomes_known() -> None:
    world, strategy = World(RUNGS), DrawingStrategy()
    world.run(FakeBackend(noisy), strategy=strategy)
    seen = [
        [(h.episodes[2][i].loss, h.episodes[2][i].stopped) for i in range(6)]
        for h in strategy.seen[2:]
    ]
    assert any(stopped for _, stopped in seen[0])
    for (first, stopped), (last, _) in zip(seen[0], seen[-1], strict=True):
        assert (first != last) == stopped


def test_decisions_hang_neither_on_groups_nor_on_the_order_of_results() -> None:
    worlds = []
    for size in (1, 2, 6):
        worlds.append(World(RUNGS))
        worlds[-1].run(FakeBackend(noisy, group_size=size))
    first, *others = (
        [(c.index, c.status, c.num_steps, c.note, c.reward) for c in w.candidates] for w in worlds
    )
    assert {"succeeded", "stopped"} == {status for _, status, *_ in first}
    assert all(other == first for other in others)


@pytest.mark.parametrize("where", ["before", "after", "backend"])
def test_killed_anywhere_a_search_with_rungs_decides_the_same_again(where: str) -> None:
    odd = {"losses": noisy, "fail": frozenset(NAMES[::17]), "interrupt": frozenset(NAMES[::5])}
    undisturbed, backend = World(RUNGS), FakeBackend(**odd)
    undisturbed.run(backend)
    decisions = {str(r.architecture): r.rungs for r in backend.requests}
    for at in range(30, 400, 3):
        world = World(RUNGS)
        first = DyingBackend(at if where == "backend" else 0, **odd)
        journal = DyingJournal(world.journal, at if where != "backend" else 0, where == "after")
        try:
            world.run(first, journal)
        except Killed:
            killed = True
        else:
            killed = False
        second = FakeBackend(**odd)
        if world.status[0] != "succeeded":
            assert world.run(second) == "succeeded"
        assert world.outcome == undisturbed.outcome, at
        assert [c.note for c in world.candidates] == [c.note for c in undisturbed.candidates]
        for request in (*first.requests, *second.requests):
            assert request.rungs == decisions[str(request.architecture)]
        if not killed:
            break
    assert not killed
    assert any(c.status == "stopped" for c in undisturbed.candidates)


def test_what_was_stopped_is_neither_offered_again_nor_looked_up() -> None:
    world, strategy = World(RUNGS), CountingStrategy()
    offered: dict[int, set[int]] = {}
    ask = strategy.ask

    def watched(
        episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        offered[episode] = {*allowed}
        return ask(episode, count, allowed, history)

    strategy.ask = watched  # type: ignore[method-assign]
    world.run(strategy=strategy)
    stopped = {c.index: c.episode for c in world.candidates if c.status == "stopped"}
    assert stopped
    for index, episode in stopped.items():
        assert all((index in allowed) == (n <= episode) for n, allowed in offered.items())
    bests = [(e.global_best, e.previous_best) for e in world.episodes]
    assert not {*stopped} & {index for pair in bests for index in pair}

    world.spec = {**RUNGS, "proxy": {"steps": 10}}
    world.new_search()
    backend = FakeBackend()
    world.run(backend)
    known = {c.index for c in world.candidates if c.reused}
    assert known
    assert not known & {*stopped}


def test_a_rung_with_too_few_students_stops_nobody() -> None:
    world, backend = World({**RUNGS, "controller": {"episodes": 3, "candidates": 3}}), FakeBackend()
    world.run(backend)
    assert {(r.read_after, r.rungs) for r in backend.requests} == {((3, 6), ())}
    assert {c.status for c in world.candidates} == {"succeeded"}
    assert all([r.step for r in c.readings] == [3, 6] for c in world.candidates)
    plain = World({**SPEC, "proxy": {"steps": 10}})
    plain.run(backend)
    assert {c.readings for c in plain.candidates} == {()}


def test_a_worker_that_ends_a_training_by_itself_has_not_done_it() -> None:
    class Impatient(FakeBackend):
        def _result(self, request: MiniKDRequest) -> MiniKDResult:
            found = super()._result(request)
            return replace(found, losses=None, steps=3, readings=found.readings[:1])

    world = World(RUNGS)
    with pytest.raises(TrainingError, match="ended it after 3 steps without being asked to"):
        world.run(Impatient())

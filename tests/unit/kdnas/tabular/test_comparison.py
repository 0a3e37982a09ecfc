"""Strategies on a surface by the real loop: replays, what is kept of them, and standings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from controller.strategies import build_strategy
from kdnas.errors import SpecError
from kdnas.specs.search import ControllerSpec, LimitsSpec, ProxySpec, RewardSpec, SearchSpec
from kdnas.tabular.comparison import Question, run_replays, standings
from kdnas.tabular.judge import Judge
from kdnas.tabular.replay import Replay, ReplayBackend, replay
from kdnas.tabular.surface import surface_of, synthetic
from kdnas.tabular.table import Key, StateRow, Table, TableRow
from kdnas.testing.backend_contract import BackendContract
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    TEACHER,
    benchmark_losses,
    benchmark_ms,
    benchmark_params,
    benchmark_reward,
    benchmark_start,
)

SURFACE = surface_of(
    Table(
        tuple(
            TableRow(Key(state, 0, 60, step), loss)
            for state in BENCHMARK_SPACE.states
            for step, loss in (
                (0, benchmark_start(state)),
                (60, benchmark_losses(state).relative),
            )
        ),
        {s: StateRow(benchmark_ms(s), benchmark_params(s)) for s in BENCHMARK_SPACE.states},
        benchmark_ms(TEACHER),
    ),
    "benchmark",
)
NUM = len(BENCHMARK_SPACE)


class TestReplayBackend(BackendContract):
    architectures = SURFACE.space.states[:4]

    def make(self) -> ReplayBackend:
        return ReplayBackend(SURFACE, 0)


def question(**changes: Any) -> Question:
    asked = Question(SURFACE, SearchSpec(), 3, (6, 18), 6)
    return replace(asked, **changes)


def limited(ratio: float) -> SearchSpec:
    return SearchSpec(limits=LimitsSpec(max_latency_ratio=ratio))


def specs(*names: str) -> dict[str, ControllerSpec]:
    return {name: controller(name) for name in names}


def controller(strategy: Any, **size: int) -> ControllerSpec:
    return ControllerSpec.read({"strategy": strategy, **size}, "request")


def test_without_noise_a_replay_is_told_the_truth() -> None:
    asked = controller("fastest-first", episodes=4, candidates=5)
    spec = SearchSpec(controller=asked)
    found = replay(SURFACE, spec, build_strategy)
    by_latency = sorted(range(NUM), key=lambda i: (SURFACE.latency_ms[i], i))
    assert list(found.order) == by_latency[:20]
    judge, states = Judge(SURFACE, spec, range(NUM)), SURFACE.space.states
    assert judge.rewards == pytest.approx([benchmark_reward(state) for state in states])
    best = max(judge.rewards[i] for i in found.order)
    assert judge.regret(found, 20) == pytest.approx(max(judge.rewards) - best)


def test_a_state_that_is_proposed_again_costs_nothing() -> None:
    """Variant `paper` repeats states; the order has each of them once."""
    published = {"variant": "paper", "epsilon_min": 0.0}
    asked = controller(published, episodes=20, candidates=6)
    found = replay(SURFACE, SearchSpec(controller=asked), build_strategy)
    assert len(found.order) == len(set(found.order)) < 120


def test_limits_keep_states_out_of_proposals_and_goal() -> None:
    asked = question(spec=limited(0.3), seeds=1)
    assert 0 < len(asked.allowed) < NUM
    assert all(SURFACE.latency_ms[i] <= 0.3 * SURFACE.teacher_ms for i in asked.allowed)
    (found,) = run_replays(asked, specs("largest-first"), build_strategy)
    assert set(found.order) <= set(asked.allowed)
    assert asked.judge.goal_states <= set(asked.allowed)


def test_what_is_known_is_not_run_again_and_processes_find_the_same() -> None:
    asked, wanted = question(), specs("random", "controller")
    here, told = run_replays(asked, wanted, build_strategy), []
    assert [(one.strategy, one.seed) for one in here] == [
        (name, seed) for name in wanted for seed in range(3)
    ]
    kept = [one for one in here if one.seed != 1]
    again = run_replays(asked, wanted, build_strategy, kept, told.append, workers=2)
    assert again == here
    assert sorted((one.strategy, one.seed) for one in told) == [("controller", 1), ("random", 1)]


def test_seeds_differ_and_a_seed_is_the_same_each_time() -> None:
    asked = question()
    one, two = (run_replays(asked, specs("random"), build_strategy) for _ in range(2))
    assert one == two
    assert len({found.order for found in one}) == 3


def test_standings_tell_who_is_near_the_best() -> None:
    asked = question(seeds=8)
    replays = run_replays(asked, specs("random", "reading-only"), build_strategy)
    random, reading = standings(asked, replays, "random")
    assert (random.name, random.p_regrets, random.p_trainings) == ("random", None, None)
    assert random.times_reference is None
    assert reading.regrets[0].median < random.regrets[0].median
    assert reading.trainings.median < random.trainings.median
    assert reading.times_reference is not None
    times = reading.trainings.median / random.trainings.median
    assert reading.times_reference.median == pytest.approx(times)
    assert reading.solved == 1.0
    assert all(0 <= p <= 1 for p in reading.p_regrets or ())
    told = json.loads(json.dumps(reading.to_json(), allow_nan=False))
    assert told["trainings"] == list(reading.trainings)
    never = replace(reading, trainings=reading.trainings._replace(high=math.inf))
    assert never.to_json()["trainings"][2] is None
    with pytest.raises(SpecError, match="reference 'gp' is none of random, reading-only"):
        standings(asked, replays, "gp")


def with_rungs(keep: int) -> SearchSpec:
    return SearchSpec(proxy=ProxySpec(rungs=(0,), keep=keep))


def test_rungs_end_trainings_and_what_they_save_is_told() -> None:
    asked = question(spec=with_rungs(2), budgets=(6, 24))
    one = run_replays(asked, specs("random"), build_strategy)[0]
    whole = run_replays(question(budgets=(6, 24)), specs("random"), build_strategy)[0]
    assert one.order == whole.order
    assert set(one.stopped) < set(one.order)
    # Nothing is stopped before a rung knows some trainings; the best so far never would be.
    assert len(one.stopped) > 3
    assert asked.judge.goal_states.isdisjoint(one.stopped)
    assert one.saved == pytest.approx(len(one.stopped) / 24)  # at the start no step is made
    assert (whole.stopped, whole.saved) == ((), 0.0)
    (standing,) = standings(asked, [one], "random")
    assert standing.saved == (one.saved,) * 3
    assert standing.to_json()["saved"] == [one.saved] * 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 0}, "seeds is 0; give at least 1"),
        ({"budgets": ()}, "budgets are []"),
        ({"budgets": (60, 20)}, "budgets are [60, 20]; give numbers of trainings from 1 on"),
        ({"budgets": (0, 20)}, "budgets are [0, 20]"),
        (
            {"spec": SearchSpec(proxy=ProxySpec(rungs=(0, 30)))},
            "not every training of benchmark was read after step 30, where a rung is asked for; "
            "take of these: 0",
        ),
    ],
)
def test_a_question_without_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        question(**changes)
    assert said in str(raised.value)


def test_a_goal_that_no_state_can_meet_is_refused_before_anything_runs() -> None:
    asked = question(spec=limited(1e-6))
    ran: list[Replay] = []
    with pytest.raises(SpecError, match="no state of the space is within the limits"):
        run_replays(asked, specs("random"), build_strategy, on_replay=ran.append)
    assert ran == []


def test_where_nothing_can_be_found_no_search_runs() -> None:
    asked = question(surface=replace(SURFACE, teacher_ms=min(SURFACE.latency_ms)))
    ran: list[Replay] = []
    with pytest.raises(SpecError, match="nothing can be found on benchmark"):
        run_replays(asked, specs("random"), build_strategy, on_replay=ran.append)
    assert ran == []


def test_what_decides_replays_names_the_question() -> None:
    asked = question()
    same = (question(seeds=9), question(budgets=(5, 18)))
    other = (
        question(budgets=(6, 24)),
        question(candidates=5),
        question(spec=SearchSpec(reward=RewardSpec(latency_price=0.2))),
        question(spec=limited(0.5)),
        question(spec=SearchSpec(goal="front")),
        question(surface=synthetic("rough")),
        question(spec=with_rungs(3)),
        question(spec=with_rungs(2)),
        question(surface=replace(SURFACE, knows_sizes=False)),
    )
    assert all(one.fingerprint == asked.fingerprint for one in same)
    assert len({asked.fingerprint, *(one.fingerprint for one in other)}) == 10

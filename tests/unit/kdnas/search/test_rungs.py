"""What a loss on the way foretells, and who is not worth the rest of the training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.records import Candidate, Losses, Reading, Rung
from kdnas.search.hypervolume import hypervolume
from kdnas.search.protocols import SearchProblem
from kdnas.search.rungs import (
    FEWEST_PAIRS,
    Line,
    foretold,
    lines,
    rungs_of,
    steps_saved,
    stopped_note,
    wanted_losses,
)
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem

LOSS = st.floats(0.01, 2.0)
PAIRS = st.lists(st.tuples(LOSS, LOSS), min_size=FEWEST_PAIRS, max_size=40)
STATE = st.integers(0, len(BENCHMARK_SPACE) - 1)
KNOWN = st.dictionaries(STATE, st.floats(0.01, 0.99), min_size=1, max_size=20)
PROBLEM = benchmark_problem()
FRONT = replace(PROBLEM, goal="front")
LIMIT = replace(PROBLEM, goal="limit", reward=lambda loss, _: 1 - min(loss, 1.0))


def losses(relative: float) -> Losses:
    return Losses(0.1, 0.2, relative, relative / 2)


def candidate(
    index: int, readings: Sequence[tuple[int, float]], final: float | None, steps: int = 480
) -> Candidate:
    """One that was trained to the end, or with no final loss stopped at its last reading."""
    return Candidate(
        id=str(index),
        search_id="s",
        episode=1,
        position=index,
        index=index,
        architecture=Architecture(1, 1, 12, 12),
        source="random",
        predicted_reward=None,
        status="succeeded" if final is not None else "stopped",
        losses=None if final is None else losses(final),
        reward=None if final is None else 1 - final,
        readings=tuple(Reading(step, losses(value)) for step, value in readings),
        num_steps=steps if final is not None else readings[-1][0],
    )


@given(PAIRS)
def test_a_line_is_that_of_least_squares(pairs: list[tuple[float, float]]) -> None:
    line = Line.through(pairs)
    x, y = np.array(pairs).T
    if line is None:
        assert len(set(x)) == 1
        return
    left = y - line.intercept - line.slope * x
    assert abs(left.sum()) < 1e-6 * (1 + abs(line.slope))
    if np.ptp(x) > 1e-3:
        slope, intercept = np.polyfit(x, y, 1)
        assert (line.slope, line.intercept) == pytest.approx((slope, intercept), abs=1e-5)
        assert line.deviation == pytest.approx(math.sqrt((left**2).sum() / (len(x) - 2)), abs=1e-9)


@given(PAIRS, st.randoms())
def test_a_line_does_not_hang_on_the_order(
    pairs: list[tuple[float, float]], random: object
) -> None:
    shuffled = [*pairs]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Line.through(shuffled) == Line.through(pairs)


def test_too_few_pairs_tell_nothing() -> None:
    pairs = [(0.1 * i, 0.05 * i) for i in range(1, FEWEST_PAIRS + 1)]
    assert Line.through(pairs[1:]) is None
    assert Line.through(pairs) is not None
    assert Line.through([(0.5, y) for _, y in pairs]) is None
    assert Line.through([*pairs, (math.nan, 0.1)]) is None


@given(PAIRS, LOSS, st.floats(-1, 2))
def test_a_student_goes_on_as_long_as_it_may_still_be_wanted(
    pairs: list[tuple[float, float]], reading: float, wanted: float
) -> None:
    """It ends where even two deviations below what is foretold would be too high."""
    line = Line.through(pairs)
    if line is None:
        return
    ends = reading > line.most(wanted)
    if line.slope <= 0:
        assert not ends
        return
    lowest = line.intercept + line.slope * reading - 2 * line.deviation
    if abs(lowest - wanted) > 1e-9 * (1 + abs(line.intercept) + abs(line.slope)):
        assert ends == (lowest > wanted)


@given(PAIRS, st.lists(st.floats(-1, 2), min_size=2, max_size=2))
def test_who_is_wanted_with_more_is_stopped_later(
    pairs: list[tuple[float, float]], wanted: list[float]
) -> None:
    line = Line.through(pairs)
    if line is not None:
        low, high = sorted(wanted)
        assert line.most(low) <= line.most(high)
        assert line.most(math.inf) == math.inf


@pytest.mark.parametrize("problem", [PROBLEM, LIMIT])
@given(KNOWN, STATE, st.integers(1, 8))
def test_a_state_is_wanted_while_it_may_be_among_the_best(
    problem: SearchProblem, known: dict[int, float], index: int, keep: int
) -> None:
    wanted = wanted_losses(problem, known, keep)(index)
    rewards = sorted((problem.reward_of(i, loss) for i, loss in known.items()), reverse=True)
    if len(rewards) < keep:
        assert wanted == math.inf
    elif 0 <= wanted <= 1:
        assert problem.reward_of(index, wanted) == pytest.approx(rewards[keep - 1])
    else:
        assert wanted < 0
        assert problem.reward_of(index, 0.0) < rewards[keep - 1]


@given(KNOWN, STATE)
def test_with_the_front_a_state_is_wanted_while_it_may_add_to_it(
    known: dict[int, float], index: int
) -> None:
    wanted = wanted_losses(FRONT, known, 99)(index)

    def volume(more: list[float]) -> float:
        points = [(loss, FRONT.facts[i].latency_ratio) for i, loss in known.items()]
        return hypervolume([*points, *((loss, FRONT.facts[index].latency_ratio) for loss in more)])

    assert volume([wanted]) == pytest.approx(volume([]))
    if FRONT.speed_ups[index] > 0:
        assert volume([wanted - 0.005]) > volume([])
    else:
        assert wanted == 0


def test_everything_adds_to_an_empty_front() -> None:
    fast = int(np.argmax(FRONT.speed_ups))
    assert wanted_losses(FRONT, {}, 1)(fast) == 1


def test_lines_are_fitted_on_those_that_were_trained_to_the_end() -> None:
    known = [
        candidate(i, [(30, 0.5 + i / 50), (120, 0.4 + i / 50)], 0.3 + i / 50) for i in range(9)
    ]
    odd = [
        candidate(90, [(30, 0.9)], None),
        replace(candidate(91, [(30, 0.9), (120, 0.9)], 0.9), status="failed", reward=None),
        replace(candidate(92, [], 0.9), reused=True),
        replace(candidate(93, [(30, 0.1), (60, 0.1)], None), status="running"),
    ]
    found = lines([*known, *odd], (30, 120, 240), "relative")
    assert found.keys() == {30, 120}
    for step, start in ((30, 0.5), (120, 0.4)):
        assert (found[step].slope, found[step].deviation) == pytest.approx((1, 0), abs=1e-9)
        assert found[step](0.6) == pytest.approx(0.6 + 0.3 - start)
    halves = lines(known, (30,), "output")[30]
    assert halves(0.3) == pytest.approx(0.2)
    assert lines(known[2:], (30,), "relative") == {}


def test_only_rungs_that_may_stop_somebody_are_asked_for() -> None:
    known = {120: Line(0.0, 0.5, 0.01), 30: Line(0.0, 1.0, 0.02), 60: Line(0.4, -0.1, 0.0)}
    assert rungs_of(known, 0.3, "output") == (
        Rung(30, pytest.approx(0.34), "output"),
        Rung(120, pytest.approx(0.64), "output"),
    )
    assert rungs_of(known, math.inf, "output") == ()
    assert rungs_of({}, 0.3, "output") == ()


def test_what_a_stopped_student_would_have_come_to() -> None:
    known = {30: Line(-0.2, 0.5, 0.1)}
    assert foretold(candidate(1, [(30, 0.8)], None), known, "relative") == pytest.approx(0.2)
    assert foretold(candidate(1, [(30, 0.8)], None), known, "output") == 0
    assert foretold(candidate(1, [(30, 0.8), (60, 0.7)], None), known, "relative") == 0.7
    assert stopped_note(30, 480, 0.8, known[30], 0.1) == (
        "stopped after 30 of 480 steps: a loss of 0.800 by then foretells 0.200, and at its "
        "latency no more than 0.100 is wanted"
    )
    assert stopped_note(30, None, 0.8, known[30], -0.1) == (
        "stopped after 30 steps: a loss of 0.800 by then foretells 0.200, and at its latency no "
        "loss is low enough"
    )


def test_the_share_of_the_steps_that_is_saved() -> None:
    known = [
        candidate(1, [(30, 0.5)], 0.3),
        replace(candidate(2, [], 0.3), num_steps=None, reused=True),
        replace(candidate(3, [(30, 0.5)], None), status="failed"),
    ]
    assert steps_saved([]) is None
    assert steps_saved(known) is None
    known += [candidate(4, [(30, 0.5), (120, 0.5)], None), candidate(5, [(30, 0.5)], None)]
    assert steps_saved(known) == pytest.approx(1 - (480 + 120 + 30) / (3 * 480))
    assert steps_saved(known[1:]) is None

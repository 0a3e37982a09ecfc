"""Which students are at work, and how long they take yet."""

from __future__ import annotations

import pytest

from kdnas.architecture import Architecture
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    CandidateFinished,
    GroupProgress,
    MiniKDResult,
    StillWaiting,
)
from kdnas.search.at_work import StudentsAtWork

SMALL = Architecture.parse("3,4,192,384,gelu")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def finished(name: str) -> CandidateFinished:
    return CandidateFinished("w", MiniKDResult(name, SMALL, None, "odd", 1, 0.1))


def test_nobody_trains_before_the_first_step() -> None:
    at_work = StudentsAtWork()
    assert (at_work.begun, at_work.num_training, str(at_work)) == (set(), 0, "0 students")
    at_work.note(AttemptStarted(("a", "b"), "w"))
    at_work.note(StillWaiting(("a", "b"), "w"))
    at_work.note(GroupProgress(("a", "b"), "w", 0, 600))
    assert (at_work.begun, at_work.num_training) == ({"a", "b"}, 0)
    at_work.note(GroupProgress(("a", "b"), "w", 1, 600))
    assert at_work.num_training == 2


def test_who_has_ended_is_counted_no_more() -> None:
    at_work = StudentsAtWork()
    at_work.note(AttemptStarted(("a", "b"), "w"))
    at_work.note(GroupProgress(("a", "b"), "w", 30, 600))
    at_work.note(finished("a"))  # at a rung: the others of its group go on
    at_work.note(GroupProgress(("a", "b"), "w", 31, 600))
    assert at_work.num_training == 1
    at_work.note(AttemptInterrupted(("b",), "w", "the worker died"))
    assert (at_work.begun, at_work.num_training) == (set(), 0)
    at_work.note(AttemptStarted(("b",), "w"))
    assert at_work.num_training == 0  # its next attempt begins anew


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        (0.01, "less than a minute"),
        (0.3, "about 1 minute"),
        (1.0, "about 5 minutes"),
        (17.0, "about 82 minutes"),
        (25.0, "about 2 hours"),
    ],
)
def test_the_pace_says_how_long_it_takes_yet(seconds: float, left: str) -> None:
    clock = Clock()
    at_work = StudentsAtWork(clock)
    at_work.note(AttemptStarted(("a", "b"), "w"))
    for step in range(300, 311):
        at_work.note(GroupProgress(("a", "b"), "w", step, 600))
        clock.now += seconds
    assert str(at_work) == f"2 students at step 310 of 600, {left} left"


def test_of_several_groups_the_slowest_counts() -> None:
    clock = Clock()
    at_work = StudentsAtWork(clock)
    at_work.note(AttemptStarted(("a", "b"), "w"))
    at_work.note(AttemptStarted(("c",), "v"))
    at_work.note(GroupProgress(("a", "b"), "w", 100, 600))
    at_work.note(GroupProgress(("c",), "v", 10, 600))
    assert str(at_work) == "3 students at step 10 of 600"
    clock.now = 10.0
    at_work.note(GroupProgress(("a", "b"), "w", 200, 600))
    assert at_work.seconds_left is None  # as long as the pace of one is unknown
    at_work.note(GroupProgress(("c",), "v", 20, 600))
    assert at_work.seconds_left == pytest.approx(580.0)
    assert str(at_work) == "3 students at step 20 of 600, about 10 minutes left"
    at_work.note(finished("c"))
    assert str(at_work) == "2 students at step 200 of 600, less than a minute left"

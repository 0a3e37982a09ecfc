"""What the loop makes of a worker's result."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.records import Losses, MiniKDRequest, MiniKDResult, Proposal, Reading, Rung
from kdnas.search.checks import check_proposals, checked_result

SMALL = Architecture(1, 1, 12, 12)
LOSSES = Losses(0.1, 0.2, 0.3, 0.4)
HIGH = Losses(0.1, 0.2, 0.9, 0.4)
BROKEN = Losses(math.inf, 0.2, 0.3, 0.4)
REQUEST = MiniKDRequest("c", SMALL, (30, 60), rungs=(Rung(60, 0.5),))
WHOLE = MiniKDResult("c", SMALL, LOSSES, None, 120, 1.0)
STOPPED = replace(WHOLE, losses=None, steps=60, readings=(Reading(30, HIGH), Reading(60, HIGH)))


def test_a_student_that_was_stopped_as_asked_is_no_failure() -> None:
    start = Reading(0, replace(HIGH, training=math.nan))
    given = replace(STOPPED, readings=(start, *STOPPED.readings))
    assert checked_result(given, REQUEST) == STOPPED


def test_readings_are_those_that_were_asked_for() -> None:
    readings = (Reading(0, LOSSES), Reading(30, BROKEN), Reading(60, LOSSES), Reading(120, LOSSES))
    checked = checked_result(replace(WHOLE, readings=readings), REQUEST)
    assert checked == replace(WHOLE, readings=(Reading(60, LOSSES),))
    assert checked_result(replace(WHOLE, readings=readings), MiniKDRequest("c", SMALL)) == WHOLE


def test_a_start_that_was_asked_for_is_kept_though_it_has_no_training_loss() -> None:
    start = Reading(0, replace(HIGH, training=math.nan))
    asked = replace(REQUEST, read_after=(0, 60), rungs=(Rung(0, 0.5),))
    checked = checked_result(replace(STOPPED, steps=0, readings=(start,)), asked)
    assert checked.stopped
    assert checked.readings == (start,)
    broken = Reading(0, replace(HIGH, relative=math.inf, training=math.nan))
    assert checked_result(replace(WHOLE, readings=(broken,)), asked).readings == ()


def test_who_ends_early_without_being_asked_to_has_failed() -> None:
    for request in (
        replace(REQUEST, rungs=()),
        replace(REQUEST, rungs=(Rung(60, 0.95),)),
        replace(REQUEST, rungs=(Rung(30, 0.5),)),
    ):
        checked = checked_result(STOPPED, request)
        assert not checked.stopped
        assert checked.error == "the worker ended it after 60 steps without being asked to"
    nothing = checked_result(replace(STOPPED, readings=()), REQUEST)
    assert nothing.error == "the worker returned neither losses nor a reason"


@pytest.mark.parametrize(
    ("proposals", "said"),
    [
        (None, "proposed None; its ask returns a list of kdnas.records.Proposal, each with"),
        ({3}, "proposed {3}; its ask returns"),
        (np.arange(2), "proposed array([0, 1]); its ask returns"),
        ([Proposal(1, "mine"), 3], "proposed 3, no Proposal; its ask returns"),
        ([Proposal(np.int64(1), "mine")], "proposed np.int64(1) with the source 'mine'; its ask"),  # type: ignore[arg-type]
        ([Proposal(1, None)], "proposed 1 with the source None; its ask"),  # type: ignore[arg-type]
        ([Proposal(7, "mine")], "proposed 1 states, 1 of them distinct, among them [7] that are"),
        ([Proposal(1, "mine")] * 2, "proposed 2 states, 1 of them distinct; it was asked for at"),
    ],
)
def test_what_are_no_proposals_is_told_with_the_strategy(proposals: Any, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_proposals("mine:Class", proposals, 4, [0, 1, 2])
    message = str(raised.value)
    assert message.startswith(f"strategy 'mine:Class' {said}")
    assert "\n" not in message


def test_proposals_that_are_right_pass() -> None:
    check_proposals("mine:Class", (Proposal(2, "mine"), Proposal(0, "mine")), 4, [0, 1, 2])
    check_proposals("mine:Class", [], 4, [0, 1, 2])

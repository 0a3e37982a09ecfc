"""The program that times strategies counts every call, and says which bar is missed."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest

from api.tabular import named_surface


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("strategy_time")


@pytest.mark.parametrize("goal", ["front", "limit", "reward"])
@pytest.mark.parametrize("strategy", ["controller", "tpe"])
def test_every_proposal_and_every_lesson_is_timed(
    study: ModuleType, strategy: str, goal: str
) -> None:
    surface = replace(named_surface("additive"), starts={})
    found = study.timed(surface, strategy, goal, 2, 3)
    assert len(found.ask) == len(found.tell) == 6
    assert min(found.ask) > 0
    if strategy == "controller":
        assert max(found.tell) > 1  # it trains


def test_a_bar_that_is_missed_is_said_to_be(study: ModuleType) -> None:
    surface = named_surface("additive")
    rows = [
        study.Timed("controller", "front", [1.0, 19.0, 300.0], [5.0]),
        study.Timed("controller", "limit", [1.0, 21.0, 30.0], [5.0]),
        study.Timed("gp", "front", [500.0], [1.0]),
    ]
    told = study.page(surface, rows, 3, 15).splitlines()
    met, missed, other = [line for line in told if line.startswith("| `")]
    assert met == "| `controller` | `front` | 19.0 | 300.0 | 5.0 | 5.0 | met |"
    assert missed.endswith("| **missed** |")
    assert other.endswith("| 1.0 |  |")

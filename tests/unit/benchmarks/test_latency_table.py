"""The page of latency tables says which bar is missed, and how far two timings are apart."""

from collections.abc import Callable
from types import ModuleType

import pytest

from kdnas.architecture import Architecture
from kdnas.latency.table import CheckedState, LatencyCheck
from kdnas.records import LatencyProfile, LatencyTable

STATE = Architecture(2, 4, 64, 128, "gelu")


@pytest.fixture
def program(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("latency_table")


def check(*slower: float) -> LatencyCheck:
    """Students of 1, 2, 3 ms that take so many times as long."""
    return LatencyCheck.of([CheckedState(STATE, n * f, n) for n, f in enumerate(slower, 1)])


def figures(program: ModuleType, first: LatencyCheck, second: LatencyCheck) -> dict[str, float]:
    profile = LatencyProfile("cpu:one", "pytorch-eager", 1, "float32", 32)
    quality = {"num_blocks_timed": 3.0, "num_blocks": 4.0, "block_noise": 0.01}
    table = LatencyTable(profile, "modelled", "teacher", 2.0, {}, seconds=60.0, quality=quality)
    found: dict[str, float] = program.figures(table, first, second, 0.5)
    return found


def test_two_timings_of_a_student_are_compared(program: ModuleType) -> None:
    found = figures(program, check(1.0, 1.0, 1.0), check(1.0, 0.8, 1.25))
    assert found["median_apart"] == pytest.approx(0.2)
    assert found["p90_apart"] == pytest.approx(0.24)


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [
        ((1.0, 1.0, 1.0), "Every bar is met."),
        ((1.0, 1.0, 1.2), "**Missed**: 90 % within."),
        ((1.2, 1.2, 1.2), "**Missed**: median error, 90 % within."),
    ],
)
def test_a_bar_that_is_missed_is_said_to_be(
    program: ModuleType, slower: tuple[float, ...], verdict: str
) -> None:
    found = figures(program, check(*slower), check(*slower))
    page = program.as_markdown("cpu:one", {"full": {**found, "spearman": 1.0}})
    assert verdict in page
    assert "| full | 60 s | 3 of 4 | " in page
    assert "| 1.0000 | 0.00% | 0.00% |" in page

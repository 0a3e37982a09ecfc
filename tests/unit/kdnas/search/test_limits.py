from __future__ import annotations

from dataclasses import replace

import pytest

from kdnas.errors import LatencyError, SpecError
from kdnas.records import LatencyEntry
from kdnas.search.limits import StateFacts, allowed_states, state_facts
from kdnas.specs.search import LimitsSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_latencies,
    benchmark_params,
)

FACTS = [StateFacts(2.0, 0.2, 30.0), StateFacts(4.0, 0.4, 10.0), StateFacts(8.0, 0.8, 20.0)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"max_latency_ms": 4.0}, [0, 1]),
        ({"max_latency_ratio": 0.3}, [0]),
        ({"max_params_millions": 20}, [1, 2]),
        ({"max_params_millions": 20, "max_latency_ms": 5}, [1]),
    ],
)
def test_states_within_limits(limits: dict[str, float], expected: list[int]) -> None:
    assert allowed_states(FACTS, LimitsSpec(**limits)) == expected


def test_a_limit_that_leaves_nothing_is_named_with_the_smallest_value() -> None:
    with pytest.raises(SpecError, match=r"max_latency_ms is 1 and the smallest value 2;") as info:
        allowed_states(FACTS, LimitsSpec(max_latency_ms=1, max_params_millions=50))
    assert "max_params" not in str(info.value)
    with pytest.raises(SpecError, match=r"all limits together.*smallest value 2.*value 10"):
        allowed_states(FACTS, LimitsSpec(max_latency_ms=3, max_params_millions=15))


def test_facts_of_every_state() -> None:
    table = benchmark_latencies()
    facts = state_facts(BENCHMARK_SPACE, table, benchmark_params)
    assert len(facts) == len(BENCHMARK_SPACE)
    assert facts[7].latency_ratio == facts[7].latency_ms / table.teacher_ms


def test_a_table_that_does_not_fit_is_refused() -> None:
    table = benchmark_latencies()
    name, entry = next(iter(table.entries.items()))
    zero = {**table.entries, name: LatencyEntry(entry.architecture, 0.0, 0.0, True)}
    lacking = {k: v for k, v in table.entries.items() if k != name}
    for broken in (
        replace(table, entries=zero),
        replace(table, entries=lacking),
        replace(table, teacher_ms=0.0),
    ):
        with pytest.raises(LatencyError, match="measure"):
            state_facts(BENCHMARK_SPACE, broken, benchmark_params)

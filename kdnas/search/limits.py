"""What is known of every state before training, and which states a request allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.errors import LatencyError, SpecError
from kdnas.records import LatencyTable
from kdnas.search_space import SearchSpace
from kdnas.specs.search import LimitsSpec


@dataclass(frozen=True, slots=True)
class StateFacts:
    """Latency and size of one state.

    Attributes:
        latency_ms: time of a single inference.
        latency_ratio: latency as a share of the teacher's.
        params_millions: parameters of the student, in millions.
    """

    latency_ms: float
    latency_ratio: float
    params_millions: float


def state_facts(
    space: SearchSpace, table: LatencyTable, params_millions: Callable[[Architecture], float]
) -> list[StateFacts]:
    """Collect the facts of all states, in the order of their index.

    Raises:
        LatencyError: the table lacks a state, or holds a latency that is not above 0.
    """
    if not 0 < table.teacher_ms < math.inf:
        raise LatencyError(
            f"the teacher's latency is {table.teacher_ms} ms; measure the latency table again"
        )
    facts = []
    for architecture in space.states:
        entry = table.entries.get(str(architecture))
        if entry is None:
            raise LatencyError(
                f"the latency table has no entry for {architecture}; measure it for this space"
            )
        if not 0 < entry.latency_ms < math.inf:
            raise LatencyError(
                f"the latency of {architecture} is {entry.latency_ms} ms; "
                "measure the latency table again"
            )
        ratio = entry.latency_ms / table.teacher_ms
        facts.append(StateFacts(entry.latency_ms, ratio, params_millions(architecture)))
    return facts


def allowed_states(facts: Sequence[StateFacts], limits: LimitsSpec) -> list[int]:
    """Return the indices of the states within all limits.

    Raises:
        SpecError: no state is; says which limit, and the smallest value there is.
    """
    columns = {
        "max_latency_ms": [f.latency_ms for f in facts],
        "max_latency_ratio": [f.latency_ratio for f in facts],
        "max_params_millions": [f.params_millions for f in facts],
    }
    given = {name: limit for name in columns if (limit := getattr(limits, name)) is not None}
    allowed = [
        i for i in range(len(facts)) if all(columns[name][i] <= given[name] for name in given)
    ]
    if allowed:
        return allowed
    alone = [name for name in given if min(columns[name]) > given[name]]
    smallest = ", ".join(
        f"limits.{name} is {given[name]:g} and the smallest value {min(columns[name]):.4g}"
        for name in alone or given
    )
    which = "the limits" if alone else "all limits together"
    raise SpecError(f"no state of the space is within {which}: {smallest}; raise the limit")

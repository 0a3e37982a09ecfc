"""Fewer points that look the same in a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kdnas.records import ExploredState, LossName
from kdnas.search.summary import pareto_states

Item = TypeVar("Item")


def evenly(items: Sequence[Item], limit: int) -> list[Item]:
    """Return at most ``limit`` items at equal distances, the first and the last among them."""
    if len(items) <= limit:
        return list(items)
    if limit <= 1:
        return list(items[-1:][:limit])
    step = (len(items) - 1) / (limit - 1)
    return [items[round(i * step)] for i in range(limit)]


def thinned_states(
    states: Sequence[ExploredState], loss: LossName, limit: int
) -> list[ExploredState]:
    """Return at most ``limit`` states: the Pareto front, and others evenly along the latency.

    Args:
        states: each once.
        loss: of the Pareto front.
        limit: at least 1; a front that is larger is thinned itself.
    """
    if len(states) <= limit:
        return list(states)
    front = evenly(pareto_states(states, loss), limit)
    kept = {state.index for state in front}
    rest = sorted(
        (state for state in states if state.index not in kept),
        key=lambda state: (state.latency_ms, state.index),
    )
    return front + evenly(rest, limit - len(front))

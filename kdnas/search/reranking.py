"""The explored states of a search in the order of another reward, or as another goal has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kdnas.records import ExploredState
from kdnas.search.hypervolume import contributions, hypervolume
from kdnas.search.reward import RewardFunction, rank_key
from kdnas.search.summary import pareto_states


@dataclass(frozen=True, slots=True)
class Reranked:
    """A state with its place and reward now, and with those of the search's own reward.

    Attributes:
        contribution: what the front's hypervolume would lose without it; None outside a front.
    """

    rank: int
    stored_rank: int
    reward: float
    state: ExploredState
    contribution: float | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """The Pareto front in loss and latency, the fastest first, with its hypervolume."""

    hypervolume: float
    states: list[Reranked]


def rerank(
    states: Sequence[ExploredState], function: RewardFunction, max_latency_ratio: float = math.inf
) -> list[Reranked]:
    """Order states by a reward computed anew from their losses and latencies, best first.

    Args:
        states: each once.
        function: the reward.
        max_latency_ratio: share of the teacher's latency; states beyond it are left out.
    """
    stored = _stored_ranks(states)
    scored = [
        (-_reward(state, function), state.latency_ms, state.index, state)
        for state in states
        if state.latency_ratio <= max_latency_ratio
    ]
    scored.sort(key=lambda entry: entry[:3])  # as rank_key
    return [
        Reranked(rank, stored[index], -reward, state)
        for rank, (reward, _, index, state) in enumerate(scored, 1)
    ]


def front_of(states: Sequence[ExploredState], function: RewardFunction) -> Front:
    """Find the states that no other beats in loss and latency.

    Args:
        states: each once.
        function: the reward, whose loss is the one that counts.
    """
    stored = _stored_ranks(states)
    front = pareto_states(states, function.loss)
    points = [(state.losses.named(function.loss), state.latency_ratio) for state in front]
    return Front(
        hypervolume(points),
        [
            Reranked(rank, stored[state.index], _reward(state, function), state, lost)
            for rank, (state, lost) in enumerate(zip(front, contributions(points), strict=True), 1)
        ],
    )


def _stored_ranks(states: Sequence[ExploredState]) -> dict[int, int]:
    return {state.index: rank for rank, state in enumerate(sorted(states, key=rank_key), 1)}


def _reward(state: ExploredState, function: RewardFunction) -> float:
    return function(state.losses, state.latency_ratio).reward

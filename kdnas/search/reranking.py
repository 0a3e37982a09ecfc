"""The explored states of a search in the order of another reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdnas.records import ExploredState
from kdnas.search.reward import RewardFunction, rank_key


@dataclass(frozen=True, slots=True)
class Reranked:
    """A state with its place and reward now, and with those of the search's own reward."""

    rank: int
    stored_rank: int
    reward: float
    state: ExploredState


def rerank(states: Sequence[ExploredState], function: RewardFunction) -> list[Reranked]:
    """Order states by a reward computed anew from their losses and latencies, best first.

    Args:
        states: each once.
        function: the reward.
    """
    stored = {state.index: rank for rank, state in enumerate(sorted(states, key=rank_key), 1)}
    scored = [
        (-function(state.losses, state.latency_ratio).reward, state.latency_ms, state.index, state)
        for state in states
    ]
    scored.sort(key=lambda entry: entry[:3])  # as rank_key
    return [
        Reranked(rank, stored[index], -reward, state)
        for rank, (reward, _, index, state) in enumerate(scored, 1)
    ]

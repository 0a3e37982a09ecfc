"""What the states that a replay has trained are worth under a goal.

A search recommends by what it was told, noise included; what it recommends is judged by truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kdnas.errors import SpecError
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reward import RewardFunction, pareto_front
from kdnas.specs.search import SearchSpec
from kdnas.tabular.replay import Replay
from kdnas.tabular.surface import Surface

SOLVED_SHARE: Final = 0.005
"""A search has solved ``reward`` or ``limit`` with one of the best so many of the states that it
may take."""
SOLVED_VOLUME: Final = 0.99
"""And ``front`` with this share of the hypervolume of all of them."""


@dataclass(frozen=True)
class Judge:
    """Values replays.

    Attributes:
        surface: on which they ran.
        spec: with goal and reward of the searches.
        allowed: the states that they might take.
    """

    surface: Surface
    spec: SearchSpec
    allowed: Sequence[int]
    _seen: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def rewards(self) -> list[float]:
        """The reward of every state with its true loss, by index."""
        return [self._reward(i, self.surface.truth(i)) for i in range(len(self.surface.space))]

    @cached_property
    def goal_states(self) -> frozenset[int]:
        """The states with the highest rewards, :data:`SOLVED_SHARE` of them and at least one."""
        count = max(1, math.floor(SOLVED_SHARE * len(self.allowed)))
        return frozenset(sorted(self.allowed, key=lambda i: (-self.rewards[i], i))[:count])

    @cached_property
    def volume(self) -> float:
        """Hypervolume of all states that may be taken.

        Raises:
            SpecError: none of them covers anything.
        """
        volume = self._volume(self.allowed)
        if not volume:
            surface = self.surface
            raise SpecError(
                f"nothing can be found on {surface.name}: a student counts by a latency below the "
                f"teacher's ({surface.teacher_ms:g} ms) and a loss below 1, that of one that "
                "ignores its input, and none that may be taken has both; add some that have, or "
                "correct teacher_ms"
            )
        return volume

    def regret(self, replay: Replay, budget: int) -> float:
        """What is missing after a budget: reward to the best one, or a share of the hypervolume."""
        if self.spec.goal == "front":
            return 1 - self.covered(replay, budget)
        seen = replay.finished(budget)
        told = [(self._told(replay, i), -n, i) for n, i in enumerate(seen)]
        return max(self.rewards[i] for i in self.allowed) - self.rewards[max(told)[2]]

    def trainings(self, replay: Replay) -> float:
        """Trainings until it has solved its problem; infinite if it never did."""
        if self.spec.goal != "front":
            goal = self.goal_states.difference(replay.stopped)
            return next((n for n, i in enumerate(replay.order, 1) if i in goal), math.inf)
        before: list[int] = []
        for budget in range(1, len(replay.order) + 1):
            front = self._front(replay, budget)
            if front != before and self._volume(front) >= SOLVED_VOLUME * self.volume:
                return budget
            before = front
        return math.inf

    def covered(self, replay: Replay, budget: int) -> float:
        """Share of the hypervolume of the states that may be taken, by the recommended front."""
        return self._volume(self._front(replay, budget)) / self.volume

    def best_loss(self, replay: Replay, budget: int, latency_ratio: float) -> float:
        """True loss of the state that it would take under a latency; infinite if it has none."""
        within = [i for i in replay.finished(budget) if self._ratio(i) <= latency_ratio]
        if not within:
            return math.inf
        return self.surface.truth(min(within, key=lambda i: (self._loss_told(replay, i), i)))

    def _front(self, replay: Replay, budget: int) -> list[int]:
        seen = replay.finished(budget)
        points = [(self._loss_told(replay, i), self._ratio(i)) for i in seen]
        return [seen[place] for place in pareto_front(points)]

    def _volume(self, states: Iterable[int]) -> float:
        return hypervolume([(self.surface.truth(i), self._ratio(i)) for i in states])

    def _told(self, replay: Replay, index: int) -> float:
        return self._reward(index, self._loss_told(replay, index))

    def _loss_told(self, replay: Replay, index: int) -> float:
        key = (replay.seed, index)
        if key not in self._seen:
            self._seen[key] = self.surface.observed(index, replay.seed)
        return self._seen[key]

    def _reward(self, index: int, loss: float) -> float:
        return self._function.of_loss(loss, self._ratio(index))

    @cached_property
    def _function(self) -> RewardFunction:
        return RewardFunction.from_spec(self.spec.judged_by)

    def _ratio(self, index: int) -> float:
        return self.surface.latency_ms[index] / self.surface.teacher_ms

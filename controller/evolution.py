"""Regularised evolution: the young survive (Real et al. 2019, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from controller.exploration import Purpose, draw, generator
from controller.stateless import Stateless, not_proposed
from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.records import Proposal
from kdnas.search.protocols import History, Observation
from kdnas.search.reward import pareto_front
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.specs.strategies import EvolutionSpec

TRIES: Final = 50
"""Children that are drawn before a state is drawn instead, where most have been seen."""


class EvolutionStrategy(Stateless):
    """Changes one axis of the best of a few young states; the first population is drawn.

    A state that failed has no children.
    """

    name = "evolution"

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        super().__init__(spec, space, seed)
        options = spec.strategy.read_as(EvolutionSpec)
        self._population, self._sample = options.population, options.sample

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose children, and drawn states where there is nobody to have any."""
        free = set(not_proposed(allowed, history))
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        told = [o for episode_told in history.episodes for o in episode_told if not o.failed]
        young, proposals = told[-self._population :], []
        for _ in range(min(count, len(free))):
            child = self._child(young, free, rng) if len(told) >= self._population else None
            source = self.name if child is not None else "random"
            index = draw(rng, sorted(free), 1)[0] if child is None else child
            free.discard(index)
            proposals.append(Proposal(index, source))
        return proposals

    def _child(
        self, young: Sequence[Observation], free: set[int], rng: np.random.Generator
    ) -> int | None:
        """A new state beside the best of a sample; None if none was found."""
        space = self.problem.space
        for _ in range(TRIES):
            sample = draw(rng, range(len(young)), self._sample)
            parent = self._parent([young[i] for i in sample], rng)
            child = self._changed(space[parent.index], rng)
            if child is not None and child in space and space.index(child) in free:
                return space.index(child)
        return None

    def _parent(self, sample: Sequence[Observation], rng: np.random.Generator) -> Observation:
        """The best of a sample; with goal ``front`` one drawn of those that none beats."""
        if self.problem.goal != "front":
            return max(sample, key=lambda o: (o.reward, -o.index))
        points = [(o.loss, self.problem.facts[o.index].latency_ratio) for o in sample]
        front = pareto_front([(math.inf if loss is None else loss, at) for loss, at in points])
        return sample[draw(rng, front, 1)[0]]

    def _changed(self, state: Architecture, rng: np.random.Generator) -> Architecture | None:
        """The state with another value on one axis; None if that is no architecture."""
        axes = {axis: values for axis, values in self.problem.space.axes.items() if len(values) > 1}
        if not axes:
            return None
        axis = list(axes)[int(rng.integers(len(axes)))]
        others = [value for value in axes[axis] if value != getattr(state, axis)]
        try:
            return replace(state, **{axis: others[int(rng.integers(len(others)))]})
        except ArchitectureError:  # heads that do not divide the width
            return None

"""What strategies share that model the loss: picks by the goal, with latency and size known.

Batches with hallucinated outcomes (Desautels et al. 2014, GP-BUCB): a state that was picked lowers
the uncertainty of those like it, as if it had come out as predicted, so that the picks of an
episode differ.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from controller.encoding import Array
from controller.exploration import Purpose, draw_apart, generator
from controller.sizes import losses_by_size
from controller.stateless import Stateless, not_proposed
from controller.wanted import Wanted, best_of, known_losses
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import AXES

FIRST: Final = 4
"""States without whose losses nothing is modelled."""
DRAWN: Final = 4
"""Of the first picks one in so many is drawn, where the others go by the loss at the start."""
BY_SIZE: Final = 2
"""Where no start is known, one in so many goes by size, and the others are drawn."""
LOOKED: Final = 400
"""States among which an episode is picked at first: the most hopeful ones."""
_SIZES: Final = AXES[:4]


class Belief(Protocol):
    """What is expected of the losses of some states."""

    @property
    def mean(self) -> Array:
        """(N,)."""

    @property
    def deviation(self) -> Array:
        """(N,) standard deviations of what is not known of the means."""

    def look(self, position: int) -> None:
        """Lower the deviations as if the loss of one state had been measured to be its mean."""


class Modelled(Stateless):
    """Proposes the states that may add most to what is wanted, by a model of the loss.

    It sees the four sizes on a logarithmic scale, the activation, and the loss with which a state
    starts; what size alone says of the loss where not all states were read.

    Attributes:
        confidence: standard deviations by which a loss may turn out lower than predicted.
        features: (states, features) of mean 0 and deviation 1.
        groups: which columns are of one axis, or the start.
        looked: states to look at first.
    """

    confidence: float
    looked: int = LOOKED

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known, and describe every state by numbers."""
        super().begin(problem)
        self.features, self.groups = _features(problem)

    @abstractmethod
    def believe(
        self,
        known: Mapping[int, float],
        pool: Sequence[int],
        wanted: Wanted,
        episode: int,
        most: int,
    ) -> tuple[list[int], Belief]:
        """Model the loss.

        Args:
            known: index → loss of all states that were trained, :data:`FIRST` at least.
            pool: states that may be proposed.
            wanted: what losses are worth.
            episode: in which they would be.
            most: states to look at.

        Returns:
            The :meth:`shortlist` of the pool, and what is believed of it.
        """

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the most hopeful states; before there are losses enough, the first ones."""
        pool = not_proposed(allowed, history)
        if not pool:
            return []
        if len(known_losses(history)) < FIRST:
            return self._first(episode, count, pool)
        most = self.looked
        while (proposals := self._hopeful(episode, count, pool, history, most)) is None:
            most *= 2
        return proposals

    def _hopeful(
        self, episode: int, count: int, pool: list[int], history: History, most: int
    ) -> list[Proposal] | None:
        """Pick one after the other among the most hopeful; None if another might be better."""
        wanted = Wanted(self.problem, history.trained)
        looked, belief = self.believe(known_losses(history), pool, wanted, episode, most)
        proposals: list[Proposal] = []
        free, outside = np.ones(len(looked), bool), -math.inf
        for _ in range(min(count, len(pool))):
            hopes = wanted.worth(looked, self.hoped(belief))
            if not proposals and len(looked) < len(pool):
                outside = float(hopes.min())
            pick = int(np.argmax(np.where(free, hopes, -math.inf)))
            if not free[pick] or hopes[pick] < outside:
                return None
            free[pick] = False
            expected = float(belief.mean[pick])
            wanted.take(looked[pick], expected)
            belief.look(pick)
            reward = self.problem.reward_of(looked[pick], expected)
            proposals.append(Proposal(looked[pick], self.name, reward))
        return proposals

    def hoped(self, belief: Belief) -> Array:
        """The losses by which the next pick is made: (N,), those that may turn out."""
        return self._at_best(belief.mean, belief.deviation)

    def shortlist(
        self, pool: Sequence[int], mean: Array, deviation: Array, wanted: Wanted, most: int
    ) -> list[int]:
        """The most hopeful states of a pool, in its order.

        A pick makes others less uncertain and takes from what they would add, so that hopes only
        fall (Minoux 1978): while the best of these is no worse than any other was at first, it is
        the best of all.

        Args:
            pool: states.
            mean: (N,) expected of their losses.
            deviation: (N,) of what is not known of the means.
            wanted: what losses are worth.
            most: how many.
        """
        hopes = wanted.worth(pool, self._at_best(mean, deviation))
        best = np.argsort(-hopes, kind="stable")[:most]
        return [pool[i] for i in sorted(best)]

    def _at_best(self, mean: Array, deviation: Array) -> Array:
        return mean - self.confidence * deviation

    def _first(self, episode: int, count: int, pool: list[int]) -> list[Proposal]:
        """States to learn from: by what is known or guessed of their losses, and drawn ones."""
        read = len(self.problem.starts) == len(self.problem.space)
        picked = self._by_reading(count, pool) if read else self._by_size(count, pool)
        taken = {proposal.index for proposal in picked}
        rest = [index for index in pool if index not in taken]
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        drawn = draw_apart(rng, rest, count - len(picked), self.features, sorted(taken))
        return [*picked, *(Proposal(index, "random") for index in drawn)]

    def _by_reading(self, count: int, pool: list[int]) -> list[Proposal]:
        """The best, had each the loss with which it starts."""
        problem = self.problem
        starts = np.array([problem.starts[index] for index in pool])
        best = best_of(Wanted(problem, {}), pool, starts, count - count // DRAWN)
        return [
            Proposal(pool[i], "reading", problem.reward_of(pool[i], float(starts[i]))) for i in best
        ]

    def _by_size(self, count: int, pool: list[int]) -> list[Proposal]:
        """The best, if the larger always loses less; that foretells no reward.

        Which state a price makes the best depends on how much the smallest loses, which nobody
        knows: from all, when the largest is, to nothing.
        """
        losses, wanted = losses_by_size(self.problem, pool), Wanted(self.problem, {})
        share = -(-count // BY_SIZE)
        if self.problem.goal != "reward":
            best = best_of(wanted, pool, losses / 2, share)
        else:
            best = []
            for most in np.linspace(1, 0, min(max(2, share), count, len(pool))):
                worth = wanted.worth(pool, most * losses)
                worth[best] = -math.inf
                best.append(int(np.argmax(worth)))
        return [Proposal(pool[i], "size") for i in best]


def _features(problem: SearchProblem) -> tuple[Array, list[slice]]:
    """Describe states by numbers of a like scale: (states, features), and which are of one thing.

    What is the same of all states is left out.
    """
    states = problem.space.states
    things = [[[math.log(getattr(state, axis)) for state in states]] for axis in _SIZES]
    things.append(
        [
            [float(state.activation == activation) for state in states]
            for activation in problem.space.activation[1:]
        ]
    )
    every = range(len(states))
    if len(problem.starts) == len(states):
        things.append([[problem.starts[index] for index in every]])
    else:
        things.append([list(losses_by_size(problem, every))])
    columns: list[Array] = []
    groups = []
    for thing in things:
        values = [np.array(column) for column in thing if len(set(column)) > 1]
        if values:
            groups.append(slice(len(columns), len(columns) + len(values)))
            columns += [(column - column.mean()) / column.std() for column in values]
    return np.array(columns).reshape(len(columns), len(states)).T, groups

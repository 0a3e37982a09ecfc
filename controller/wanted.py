"""What a loss is worth under the goal of a search, and which states to take by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controller.encoding import Array
from kdnas.search.hypervolume import Covered
from kdnas.search.protocols import History, SearchProblem


class Wanted:
    """Values losses of states, given what is there.

    Under ``reward`` and ``limit`` a state is worth its reward, whatever else is there; under
    ``front`` what it adds to the hypervolume, and below 0 by how far it is from adding anything.

    Args:
        problem: what is known of the states, and the goal.
        there: index → loss of the states that are there.
    """

    def __init__(self, problem: SearchProblem, there: Mapping[int, float]) -> None:
        self._problem = problem
        self._covered = None
        if problem.goal == "front":
            ups = problem.speed_ups[list(there)]
            self._covered = Covered(np.array(list(there.values())), ups)

    def worth(self, states: Sequence[int], losses: Array) -> Array:
        """What each of some states is worth with a loss: (N,) of (N,)."""
        which = np.asarray(states, np.intp)
        if self._covered is None:
            rewards: Array = (1 - np.minimum(losses, 1.0)) * self._problem.prices[which]
            return rewards
        ups = self._problem.speed_ups[which]
        gains = self._covered.gains(losses, ups)
        worth: Array = np.where(gains > 0, gains, -self._covered.excess(losses, ups))
        return worth

    def take(self, index: int, loss: float) -> None:
        """Count a state as one that is there."""
        if self._covered is not None:
            self._covered.add(loss, float(self._problem.speed_ups[index]))


def known_losses(history: History) -> dict[int, float]:
    """The losses of all states that were trained, by index; foretold ones of those stopped."""
    return {o.index: o.loss for told in history.episodes for o in told if o.loss is not None}


def best_of(wanted: Wanted, pool: Sequence[int], losses: Array, count: int) -> list[int]:
    """Positions of the states to take, each as if those before it had come out as expected.

    Args:
        wanted: values them; takes them.
        pool: states, of which the first of equal ones is taken.
        losses: (N,) expected of each.
        count: how many, at most.
    """
    taken: list[int] = []
    free = np.ones(len(pool), bool)
    worth = wanted.worth(pool, losses)
    for _ in range(min(count, len(pool))):
        pick = int(np.argmax(np.where(free, worth, -np.inf)))
        taken.append(pick)
        free[pick] = False
        wanted.take(pool[pick], float(losses[pick]))
        worth = wanted.worth(pool, losses)
    return taken

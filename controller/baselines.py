"""What a user would do without a search: orders of states that learn nothing, or a straight line.

They stand beside every result, so that what a strategy is worth can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controller.stateless import Stateless, not_proposed
from kdnas.errors import SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import SearchSpace


class _Ordered(Stateless):
    """Proposes states in an order; ties go to the lower index."""

    def learn(self, history: History) -> None:
        """Take from the history what the order depends on; before each question."""

    def key(self, index: int) -> tuple[float, ...]:
        """Where a state stands: the smallest is proposed first."""
        raise NotImplementedError

    def predicted(self, index: int) -> float | None:
        """The reward that is expected of a state, if one is."""
        return None

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the next states of the order; fewer if they run out."""
        self.learn(history)
        pool = not_proposed(allowed, history)
        first = sorted(pool, key=lambda index: (self.key(index), index))[:count]
        return [Proposal(i, self.name, self.predicted(i)) for i in first]


class FastestFirst(_Ordered):
    """The smallest latency first."""

    name = "fastest-first"

    def key(self, index: int) -> tuple[float, ...]:
        """Its latency."""
        return (self.problem.facts[index].latency_ms,)


class LargestFirst(_Ordered):
    """The most parameters first."""

    name = "largest-first"

    def key(self, index: int) -> tuple[float, ...]:
        """Its parameters, the most of them first."""
        return (-self.problem.facts[index].params_millions,)


class ReadingOnly(_Ordered):
    """The best reward first that a student would have with the loss it starts with."""

    name = "reading-only"

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known; SpecError unless every state was read as it starts."""
        super().begin(problem)
        self.require(problem.space, problem.starts)
        self._line = 1.0, 0.0

    def require(self, space: SearchSpace, starts: Mapping[int, float]) -> None:
        """Refuse a space of which a state was not read as it starts.

        Raises:
            SpecError: says how many states were not.
        """
        missing = len(space) - len(starts)
        if missing:
            raise SpecError(
                f"strategy {self.name} needs the loss with which every state starts, and {missing} "
                f"of {len(space)} were not read; run `kdnas sweep` with the same settings first"
            )

    def learn(self, history: History) -> None:
        """Take from the history how losses follow from starts."""
        self._line = self.line(history)

    def key(self, index: int) -> tuple[float, ...]:
        """The reward that is expected of it, the highest first; of equal ones the best start."""
        return -self.predicted(index), self.problem.starts[index]

    def predicted(self, index: int) -> float:
        """The reward with the loss that is expected of it."""
        slope, constant = self._line
        return self.problem.reward_of(index, constant + slope * self.problem.starts[index])

    def line(self, history: History) -> tuple[float, float]:
        """From the loss at the start to the loss after training: slope and constant."""
        return 1.0, 0.0


class ReadingFit(ReadingOnly):
    """As ``reading-only``, with a straight line from the start's loss to the loss after training.

    It is fitted by least squares to what was trained, anew in each episode; before two states
    with different starts are known the loss is that of the start.
    """

    name = "reading-fit"

    def line(self, history: History) -> tuple[float, float]:
        """Slope and constant of the least-squares line."""
        known = [
            (self.problem.starts[o.index], o.loss)
            for told in history.episodes
            for o in told
            if o.loss is not None
        ]
        if len({start for start, _ in known}) < 2:
            return super().line(history)
        starts, losses = np.array(known, np.float64).T
        slope, constant = np.polyfit(starts, losses, 1)
        return float(slope), float(constant)

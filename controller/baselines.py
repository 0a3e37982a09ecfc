"""What a user would do without a search: orders of states that learn nothing, or a straight line.

They stand beside every result, so that what a strategy is worth can be seen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from controller.sizes import losses_by_size
from controller.stateless import Stateless, not_proposed
from controller.wanted import Wanted, best_of, known_losses
from kdnas.errors import SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import SearchSpace


class _Ordered(Stateless):
    """Proposes states in an order; ties go to the lower index."""

    @abstractmethod
    def key(self, index: int) -> float:
        """Where a state stands: the smallest is proposed first."""

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the next states of the order; fewer if they run out."""
        pool = not_proposed(allowed, history)
        first = sorted(pool, key=lambda index: (self.key(index), index))[:count]
        return [Proposal(index, self.name) for index in first]


class FastestFirst(_Ordered):
    """The smallest latency first."""

    name = "fastest-first"

    def key(self, index: int) -> float:
        """Its latency."""
        return self.problem.facts[index].latency_ms


class LargestFirst(_Ordered):
    """The most parameters first."""

    name = "largest-first"

    def key(self, index: int) -> float:
        """Its parameters, the most of them first."""
        return -self.problem.facts[index].params_millions


class SizeOnly(Stateless):
    """The best states first, if the larger always loses less; what is trained teaches it nothing.

    With goal ``front`` the best is what adds most to the hypervolume of those before it, had all of
    them the losses that are guessed.
    """

    name = "size-only"

    def begin(self, problem: SearchProblem) -> None:
        """Guess at the loss of every state: half of the signal for the smallest, 0 for the largest.

        A price favours the large or the small by how much the smallest loses, which nobody knows.
        """
        super().begin(problem)
        self._losses = losses_by_size(problem, range(len(problem.space))) / 2

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the best states of those that are left; fewer if they run out."""
        pool = not_proposed(allowed, history)
        before = {index: float(self._losses[index]) for index in sorted(history.indices)}
        best = best_of(Wanted(self.problem, before), pool, self._losses[pool], count)
        # A guess by size says who is better than whom, and foretells no reward.
        return [Proposal(pool[i], self.name) for i in best]


class ReadingOnly(Stateless):
    """The best states first, had each the loss that it starts with.

    Of equal ones the best start is first. With goal ``front`` the best is what adds most to the
    hypervolume of those before it, had they, too, the losses that they start with.
    """

    name = "reading-only"

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known; SpecError unless every state was read as it starts."""
        super().begin(problem)
        self.require(problem.space, problem.starts)

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

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the best states of those that are left; fewer if they run out."""
        problem, starts = self.problem, self.problem.starts
        slope, constant = self.line(history)
        pool = sorted(not_proposed(allowed, history), key=lambda i: (starts[i], i))
        losses = np.array([constant + slope * starts[i] for i in pool])
        before = {i: constant + slope * starts[i] for i in sorted(history.indices)}
        return [
            Proposal(pool[i], self.name, problem.reward_of(pool[i], float(losses[i])))
            for i in best_of(Wanted(problem, before), pool, losses, count)
        ]

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
        known = [(self.problem.starts[i], loss) for i, loss in known_losses(history).items()]
        if len({start for start, _ in known}) < 2:
            return super().line(history)
        starts, losses = np.array(known, np.float64).T
        slope, constant = np.polyfit(starts, losses, 1)
        return float(slope), float(constant)

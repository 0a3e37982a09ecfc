"""What strategies share that keep nothing of their own: all they know is in the history."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Sequence

from kdnas.errors import SpecError
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec


class Stateless(ABC):
    """A strategy that is a function of seed and history; gives all but ``ask``."""

    name: str

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        self._seed = seed
        self._problem: SearchProblem | None = None
        self._identity = {"strategy": self.name, "version": 1, "space": space.fingerprint}

    @property
    def problem(self) -> SearchProblem:
        """What is known of the states."""
        if self._problem is None:
            raise ValueError(f"strategy {self.name} was not told of what is known; call begin")
        return self._problem

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        self._problem = problem

    def epsilon(self, episode: int) -> float | None:
        """None: no share of the candidates is drawn at random."""
        return None

    def tell(self, episode: int, history: History) -> float | None:
        """Learn nothing that the next question does not bring along."""
        return None

    def dump(self) -> bytes:
        """Write version and space; there is no other state."""
        return json.dumps(self._identity, sort_keys=True).encode()

    def load(self, state: bytes) -> None:
        """Check that the state is one of this strategy, version and space.

        Raises:
            SpecError: it is not.
        """
        if state != self.dump():
            raise SpecError(
                f"the stored strategy state {state[:100]!r} does not fit this search, which needs "
                f"{self.dump()!r}; start a new search"
            )


def not_proposed(allowed: Sequence[int], history: History) -> list[int]:
    """The allowed states that were never proposed, in their order."""
    seen = history.indices
    return [index for index in allowed if index not in seen]

"""A strategy of another package: what it raises is told in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdnas.plugins import call_named
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem, Strategy


class PluginStrategy:
    """Hands everything on to a strategy that is not ours.

    Attributes:
        name: by which it was asked for.
        made: the strategy.

    Raises:
        PluginError: each method, if that of the strategy raised something that is no KdnasError.
    """

    def __init__(self, name: str, made: Strategy) -> None:
        self.name, self.made = name, made

    def begin(self, problem: SearchProblem) -> None:
        """Tell it what is known."""
        self._call("begin", problem)

    def epsilon(self, episode: int) -> float | None:
        """Its share of random picks."""
        share: float | None = self._call("epsilon", episode)
        return share

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Its proposals, as they come."""
        proposals: list[Proposal] = self._call("ask", episode, count, allowed, history)
        return proposals

    def tell(self, episode: int, history: History) -> float | None:
        """Let it learn."""
        loss: float | None = self._call("tell", episode, history)
        return loss

    def dump(self) -> bytes:
        """Its state."""
        state: bytes = self._call("dump")
        return state

    def load(self, state: bytes) -> None:
        """Let it take up a state."""
        self._call("load", state)

    def _call(self, method: str, *given: Any) -> Any:
        return call_named("strategy", self.name, self.made, method, *given)

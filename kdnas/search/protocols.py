"""What the search loop needs of others: a strategy, a backend, and a journal to write in.

Strategies and backends return values and store nothing; only the loop writes, through the
journal. Each protocol has one contract suite in ``kdnas.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from kdnas.architecture import Architecture
from kdnas.records import (
    BackendEvent,
    Candidate,
    Episode,
    KnownLosses,
    MiniKDRequest,
    MiniKDResult,
    NewCandidate,
    Proposal,
    SearchRecord,
    SearchStatus,
)
from kdnas.search.hypervolume import Array
from kdnas.search.limits import StateFacts
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec, Goal


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of one state.

    Attributes:
        episode: in which it was proposed, from 1.
        index: of the state.
        reward: what the strategy is told, also for a failure.
        failed: whether it has no reward of its own.
        loss: that the reward is made of; None of a failure.
        stopped: whether its training ended at a rung, so that loss and reward are those that its
            last reading foretells by now.
    """

    episode: int
    index: int
    reward: float
    failed: bool = False
    loss: float | None = None
    stopped: bool = False


@dataclass(frozen=True)
class SearchProblem:
    """What is known of every state before anything is trained, and what is wanted.

    Attributes:
        space: the states.
        facts: latency and size of each, by index.
        starts: index → held-out loss before the first step, of the states for which it is known.
        reward: of a student with this loss and this share of the teacher's latency.
        goal: what the search is after; rewards are those of the goal, but with ``front``, where no
            reward of a single state says what it adds.
    """

    space: SearchSpace
    facts: Sequence[StateFacts]
    starts: Mapping[int, float]
    reward: Callable[[float, float], float]
    goal: Goal = "reward"

    @cached_property
    def prices(self) -> Array:
        """(states,) what 1 − L is multiplied with in the reward of each (Trivedi Eq. 4)."""
        return np.array([self.reward_of(i, 0.0) for i in range(len(self.facts))])

    @cached_property
    def speed_ups(self) -> Array:
        """(states,) halvings of the teacher's latency."""
        return -np.log2([facts.latency_ratio for facts in self.facts])

    def reward_of(self, index: int, loss: float) -> float:
        """The reward that a state would have with a loss."""
        return self.reward(loss, self.facts[index].latency_ratio)


@dataclass(frozen=True, slots=True)
class History:
    """All finished episodes of a search in order, as a strategy may see them."""

    episodes: tuple[tuple[Observation, ...], ...] = ()

    @property
    def indices(self) -> frozenset[int]:
        """Every state that was ever proposed."""
        return frozenset(o.index for episode in self.episodes for o in episode)

    @property
    def trained(self) -> dict[int, float]:
        """The loss of every state that was trained to the end, by index."""
        told = (o for episode in self.episodes for o in episode)
        return {o.index: o.loss for o in told if o.loss is not None and not o.stopped}

    def global_best(self, before_episode: int) -> Observation | None:
        """Best reward of all episodes before this one, of states trained to the end.

        Episodes count from 1.
        """
        return _best([o for e in self.episodes[: before_episode - 1] for o in e])

    def previous_best(self, before_episode: int) -> Observation | None:
        """Best reward of the episode just before this one, of states trained to the end."""
        if not 2 <= before_episode <= len(self.episodes) + 1:
            return None
        return _best(self.episodes[before_episode - 2])


def _best(observations: Sequence[Observation]) -> Observation | None:
    trained = [o for o in observations if not o.failed and not o.stopped]
    return min(trained, key=lambda o: (-o.reward, o.index)) if trained else None


class Strategy(Protocol):
    """Proposes states and learns from rewards. A pure function of seed, history and its state.

    Random draws come from generators made from (seed, episode), never from a generator that is
    carried on, so an episode that is asked for again after a restart is the same.
    """

    name: str

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known; called once, before anything else.

        Raises:
            SpecError: what the strategy needs is not known.
        """

    def epsilon(self, episode: int) -> float | None:
        """Share of random picks in this episode (from 1); None for a strategy without one."""

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose up to ``count`` distinct states out of ``allowed``; fewer if they run out."""

    def tell(self, episode: int, history: History) -> float | None:
        """Learn from an episode, the last of ``history``; return the controller's loss if any."""

    def dump(self) -> bytes:
        """Write the state, with its version."""

    def load(self, state: bytes) -> None:
        """Take up a state that :meth:`dump` wrote; SpecError for one of another version."""


StrategyFactory = Callable[[ControllerSpec, SearchSpace, int], Strategy]
"""Builds a strategy of a spec, a space and a seed."""


class Backend(Protocol):
    """Trains students somewhere and tells what happens as it happens."""

    def run(
        self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[BackendEvent]:
        """Train every request; yields until each has one CandidateFinished.

        Args:
            requests: what to train.
            may_begin: asked before students are handed to a worker. While it says no none are, and
                if nothing is at work then, this ends without the rest.
        """

    def close(self) -> None:
        """Stop all work at once and free what was taken; may be called twice."""


class Journal(Protocol):
    """Where the loop writes. Each call is one transaction: it happened whole or not at all."""

    def episodes(self, search_id: str) -> list[Episode]:
        """All episodes in order, with their candidates in the order of their position."""

    def controller_state(self, search_id: str) -> bytes | None:
        """The strategy's state after the last finished episode."""

    def begin_episode(
        self,
        search_id: str,
        number: int,
        epsilon: float | None,
        global_best: int | None,
        previous_best: int | None,
        candidates: Sequence[NewCandidate],
    ) -> Episode:
        """Write an episode and its candidates before anything is trained."""

    def known_losses(
        self, context: str, architectures: Sequence[Architecture]
    ) -> Mapping[str, KnownLosses]:
        """Look up losses by context fingerprint; architecture text → those of the first repeat."""

    def start_attempt(self, candidate_ids: Sequence[str], worker: str) -> None:
        """Note that a worker began to train these candidates."""

    def interrupt_attempts(self, candidate_ids: Sequence[str], reason: str) -> None:
        """Close the open attempts of these candidates with a reason; they are proposed again."""

    def finish_candidate(
        self,
        candidate_id: str,
        context: str,
        result: MiniKDResult,
        reward: float | None,
        note: str | None,
    ) -> Candidate:
        """Store a result as it comes: losses in the look-up table, the candidate, its attempt.

        Losses are kept also where ``result.error`` says why the candidate failed all the same. Of
        one that was stopped nothing enters the look-up table.
        """

    def reuse_losses(
        self,
        candidate_id: str,
        known: KnownLosses,
        reward: float | None,
        note: str | None,
        error: str | None = None,
    ) -> Candidate:
        """Finish a candidate with losses that were known before; with an error it has failed."""

    def end_episode(
        self,
        search_id: str,
        number: int,
        controller_loss: float | None,
        controller_state: bytes,
    ) -> Episode:
        """Close an episode together with the strategy's new state and an event."""

    def get_search(self, search_id: str) -> SearchRecord:
        """Read a search by its id."""

    def set_status(
        self,
        search_id: str,
        status: SearchStatus,
        error: str | None = None,
        among: Sequence[SearchStatus] | None = None,
    ) -> SearchStatus:
        """Change a search's status, with an event, if it is one of ``among``; return what it is.

        Others cannot change it in between.
        """

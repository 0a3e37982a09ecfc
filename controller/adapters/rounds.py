"""A strategy that is asked for one state after the other by whoever runs the trials himself.

Strategies think in episodes of N states; Optuna and Ray Tune ask for one trial and tell one. What
lies between is here: an episode is closed, and the strategy told, when all its states have come to
something. It is a pure function of the outcomes in their order, so a search is taken up again by
telling them anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from controller.strategies import build_strategy
from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError, SpecError
from kdnas.search.checks import check_proposals
from kdnas.search.history import Outcome, with_outcomes
from kdnas.search.limits import StateFacts, allowed_states
from kdnas.search.protocols import History, SearchProblem
from kdnas.search.reward import RewardFunction
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.search import SearchSpec

Figures = Mapping[Architecture, float] | Callable[[Architecture], float]
"""A figure of each state of a space."""


@dataclass(frozen=True)
class StudentSearch:
    """What is searched, and all that is known of it before the first trial.

    Attributes:
        space: the states.
        latency_ms: milliseconds of each state.
        teacher_ms: the teacher's, measured alike.
        params_millions: parameters of each state, in millions.
        spec: goal, reward, limits, strategy and seed; ``controller.candidates`` are the trials of
            an episode, and whoever runs the trials decides how many episodes there are. What the
            spec says of teacher, corpus and training is not looked at.
        starts: held-out losses before the first step, of the states for which they are known.
    """

    space: SearchSpace
    latency_ms: Figures
    teacher_ms: float
    params_millions: Figures
    spec: SearchSpec = field(default_factory=SearchSpec)
    starts: Mapping[Architecture, float] = field(default_factory=dict)

    @cached_property
    def problem(self) -> SearchProblem:
        """What a strategy is told of it.

        Raises:
            SpecError: a figure is missing or not above 0.
            SearchSpaceError: a start is of a state that is not in the space.
        """
        teacher_ms = _above_zero("teacher_ms", self.teacher_ms)
        facts = []
        for state in self.space.states:
            latency_ms = _figure("latency_ms", self.latency_ms, state)
            size = _figure("params_millions", self.params_millions, state)
            facts.append(StateFacts(latency_ms, latency_ms / teacher_ms, size))
        return SearchProblem(
            self.space,
            facts,
            {self.space.index(state): loss for state, loss in self.starts.items()},
            RewardFunction.from_spec(self.spec.judged_by).of_loss,
            self.spec.goal,
        )

    @cached_property
    def allowed(self) -> list[int]:
        """Indices of the states within the limits; SpecError if there is none."""
        return allowed_states(self.problem.facts, self.spec.limits)

    def index_of(self, params: Mapping[str, Any]) -> int | None:
        """The index of the state whose axes are among some parameters, None if it is no state."""
        try:
            state = Architecture(**{axis: params[axis] for axis in AXES})
        except (ArchitectureError, KeyError):
            return None
        return self.space.index(state) if state in self.space else None

    def params_of(self, index: int) -> dict[str, Any]:
        """The axes of a state as parameters."""
        state = self.space[index]
        return {axis: getattr(state, axis) for axis in AXES}


class Rounds:
    """A strategy at work, in episodes of ``spec.controller.candidates`` trials.

    No state is proposed twice, by no strategy: whoever runs trials trains what he is given.

    Raises:
        SpecError: a figure is missing, the limits leave no state, the strategy cannot be built, or
            needs what is not known.
    """

    def __init__(self, search: StudentSearch) -> None:
        self._search, self._spec = search, search.spec.controller
        self._allowed = search.allowed
        self._strategy = build_strategy(self._spec, search.space, search.spec.seed)
        self._strategy.begin(search.problem)
        self._history = History()
        self._proposed: list[int] = []
        self._outcomes: dict[int, float | None] = {}

    @property
    def untold(self) -> set[int]:
        """Allowed states that have come to nothing yet."""
        return {*self._allowed} - self._history.indices - {*self._outcomes}

    def ask(self) -> list[int]:
        """The states of this episode that are to be tried, the next ones first.

        Where all have come to something the episode is closed and the strategy asked for the next;
        there is none, and the list empty, when it has no state left.

        Raises:
            SpecError: the strategy breaks its contract.
        """
        if not self._waiting:
            if self._outcomes:
                self._close()
            self._proposed = self._next()
        return self._waiting

    def tell(self, index: int, loss: float | None) -> None:
        """Say what a state came to, be it one that was asked for or any other.

        The first loss of a state counts, and a failure as long as its episode is open.

        Args:
            index: of the state.
            loss: held out; None, or what is not finite, is a failure.
        """
        if index not in self._history.indices and self._outcomes.get(index) is None:
            self._outcomes[index] = loss if loss is not None and math.isfinite(loss) else None

    @property
    def _waiting(self) -> list[int]:
        return [index for index in self._proposed if index not in self._outcomes]

    def _next(self) -> list[int]:
        count, allowed = self._spec.candidates, sorted(self.untold)
        if not allowed:
            return []
        number = len(self._history.episodes) + 1
        proposals = self._strategy.ask(number, count, allowed, self._history)
        check_proposals(self._strategy.name, proposals, count, allowed)
        return [proposal.index for proposal in proposals]

    def _close(self) -> None:
        """In the order of the proposals, so that it does not matter which trial ends first."""
        number, reward_of = len(self._history.episodes) + 1, self._search.problem.reward_of
        outcomes = []
        for index in dict.fromkeys((*self._proposed, *self._outcomes)):
            loss = self._outcomes[index]
            outcomes.append(Outcome(index, None if loss is None else reward_of(index, loss), loss))
        self._history = with_outcomes(self._history, number, outcomes)
        self._outcomes = {}
        self._strategy.tell(number, self._history)


def _figure(name: str, figures: Figures, state: Architecture) -> float:
    try:
        value = figures[state] if isinstance(figures, Mapping) else figures(state)
    except KeyError:
        raise SpecError(f"{name} has no figure of {state}; give one of every state") from None
    return _above_zero(f"{name} of {state}", value)


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise SpecError(f"{name} is {value}; give a number above 0")
    return float(value)

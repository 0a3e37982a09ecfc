"""Optuna's own samplers as strategies: TPE on what the goal wants, NSGA-II on loss and latency.

A study in memory is made of the history at each question, so that a strategy has no state of its
own; what a sampler draws comes from seed and episode.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from controller.exploration import Purpose, generator
from controller.stateless import Stateless, not_proposed
from kdnas.records import Proposal
from kdnas.search.protocols import History, Observation, SearchProblem
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.specs.strategies import NSGA2Spec

TRIES: Final = 5
"""Questions to a sampler for one state, where it asks for what was seen or is not allowed."""

_LOW_BOTH: Final = (StudyDirection.MINIMIZE, StudyDirection.MINIMIZE)


class _OptunaStrategy(Stateless):
    """Asks a sampler for the rank of a state's value on each axis."""

    @property
    @abstractmethod
    def directions(self) -> tuple[StudyDirection, ...]:
        """Of the values of a study."""

    @abstractmethod
    def sampler(self, seed: int, history: History) -> BaseSampler:
        """A fresh sampler that draws from a seed."""

    @abstractmethod
    def values(self, observation: Observation) -> list[float]:
        """What a study is told of a state that was trained."""

    def loss_and_latency(self, observation: Observation) -> list[float]:
        """Both of a state that was trained."""
        assert observation.loss is not None  # studies are told of no other
        return [observation.loss, self.problem.facts[observation.index].latency_ratio]

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known, and where each state stands on the axes."""
        super().begin(problem)
        axes = problem.space.axes
        self._ranks = np.array(
            [
                [axes[axis].index(getattr(state, axis)) for axis in AXES]
                for state in problem.space.states
            ]
        )

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose what the sampler asks for, or what is nearest to it where it cannot be had."""
        free, proposals = sorted(not_proposed(allowed, history)), []
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        study = self._study(int(rng.integers(2**31)), history)
        for _ in range(min(count, len(free))):
            index = self._asked(study, free)
            free.remove(index)
            proposals.append(Proposal(index, self.name))
        return proposals

    def _study(self, seed: int, history: History) -> Study:
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            study = optuna.create_study(
                sampler=self.sampler(seed, history), directions=self.directions
            )
        finally:
            optuna.logging.set_verbosity(level)
        study.add_trials(
            self._trial(o) for told in history.episodes for o in told if o.loss is not None
        )
        return study

    def _trial(self, observation: Observation) -> FrozenTrial:
        state, axes = self.problem.space[observation.index], self._distributions
        params = {axis: self.problem.space.axes[axis].index(getattr(state, axis)) for axis in axes}
        return create_trial(params=params, distributions=axes, values=self.values(observation))

    @property
    def _distributions(self) -> dict[str, BaseDistribution]:
        axes = self.problem.space.axes
        return {axis: IntDistribution(0, len(axes[axis]) - 1) for axis in AXES}

    def _asked(self, study: Study, free: Sequence[int]) -> int:
        """Ask until a free state comes; else the nearest one, counted in steps along the axes."""
        axes = self._distributions
        for _ in range(TRIES):
            trial = study.ask(axes)
            ranks = np.array([trial.params[axis] for axis in axes])
            away = np.abs(self._ranks[free] - ranks).sum(axis=1)
            nearest = int(np.argmin(away))
            if away[nearest] == 0:
                break  # it stays open: TPE then looks elsewhere
            study.tell(trial, state=TrialState.FAIL)
        return free[nearest]


class TPEStrategy(_OptunaStrategy):
    """Tree-structured Parzen estimators over all axes together (Bergstra et al. 2011)."""

    name = "tpe"

    @property
    def directions(self) -> tuple[StudyDirection, ...]:
        """A high reward, or low loss and latency with goal ``front``."""
        return _LOW_BOTH if self.problem.goal == "front" else (StudyDirection.MAXIMIZE,)

    def sampler(self, seed: int, history: History) -> BaseSampler:
        """Optuna's, multivariate, with what is asked for counted as bad meanwhile."""
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def values(self, observation: Observation) -> list[float]:
        """The reward, or loss and latency with goal ``front``."""
        if self.problem.goal == "front":
            return self.loss_and_latency(observation)
        return [observation.reward]


class NSGA2Strategy(_OptunaStrategy):
    """NSGA-II on loss and latency (Deb et al. 2002): it looks for the whole front."""

    name = "nsga2"

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        super().__init__(spec, space, seed)
        self._population = spec.strategy.read_as(NSGA2Spec).population

    @property
    def directions(self) -> tuple[StudyDirection, ...]:
        """Low loss and latency."""
        return _LOW_BOTH

    def sampler(self, seed: int, history: History) -> BaseSampler:
        """Optuna's, in the generation that comes after what was trained."""
        trained = sum(o.loss is not None for told in history.episodes for o in told)
        return _Generations(trained // self._population, self._population, seed)

    def values(self, observation: Observation) -> list[float]:
        """Loss and latency."""
        return self.loss_and_latency(observation)


class _Generations(NSGAIISampler):
    """NSGA-II in which a trial's generation follows from its number, not from notes in a study.

    Args:
        generation: of all that is asked for now.
        population: trials of a generation.
        seed: of what is drawn.
    """

    def __init__(self, generation: int, population: int, seed: int) -> None:
        super().__init__(population_size=population, seed=seed)
        self._generation, self._size = generation, population

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        """The generation of a trial that is asked for."""
        return self._generation

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The trials of a generation, by their numbers."""
        done = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
        return [trial for trial in done if trial.number // self._size == generation]

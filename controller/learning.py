"""The controller that learns: an ensemble of LSTMs on the loss, read out by Bayesian regression.

Where the published controller predicts rewards from the last episode alone, this one predicts the
loss, which is all that is not known, from every state that was trained. An LSTM reads a state axis
by axis, numbers on a logarithmic scale, and last the loss with which it starts, where all states
were read. What it has read goes, with the same numbers, into a linear regression whose uncertainty
says where a look may pay (as in Riquelme et al. 2018, "neural linear").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.linear_model import BayesianRidge

from controller.encoding import Array
from controller.exploration import Purpose, generator
from controller.lstm import LSTMEnsemble
from controller.modelled import FIRST, Modelled
from controller.wanted import Wanted, known_losses
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.specs.strategies import ControllerStrategySpec


class LearningController(Modelled):
    """Proposes by LSTMs that learn, after each episode, from all that was trained.

    They begin anew each time, from weights that the seed decides, so that what they have learned
    follows from the history alone.
    """

    name = "controller"

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        super().__init__(spec, space, seed)
        self.confidence = spec.strategy.read_as(ControllerStrategySpec).confidence

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known, and write every state as a sequence."""
        super().begin(problem)
        self._sequences = sequences_of(self.features, self.groups)
        self._learned: tuple[tuple[tuple[int, float], ...], float, list[_Member]] | None = None

    def tell(self, episode: int, history: History) -> float | None:
        """Learn from everything that was trained; the loss of the last epoch, before its step."""
        known = known_losses(history)
        return self._learn(known)[0] if len(known) >= FIRST else None

    def believe(
        self,
        known: Mapping[int, float],
        pool: Sequence[int],
        wanted: Wanted,
        episode: int,
        most: int,
    ) -> tuple[list[int], _Mixture]:
        """Take what each member believes of the most hopeful states."""
        members = self._learn(known)[1]
        every = _Mixture([member.of(pool) for member in members])
        chosen = self.shortlist(pool, every.mean, every.deviation, wanted, most)
        return chosen, _Mixture([member.of(chosen) for member in members])

    def scale_of(self, losses: Array) -> tuple[float, float]:
        """The mean and the deviation by which targets are standardised; 1 if all are the same."""
        return float(losses.mean()), float(losses.std()) or 1.0

    def _learn(self, known: Mapping[int, float]) -> tuple[float, list[_Member]]:
        """What follows from these losses; kept for the question after the answer."""
        told = tuple(known.items())  # foretold losses change from one episode to the next
        if self._learned is None or self._learned[0] != told:
            losses = np.array(list(known.values()))
            mean, scale = self.scale_of(losses)
            targets, rows = (losses - mean) / scale, np.array(list(known))
            network = LSTMEnsemble(
                self._sequences.shape[2],
                self.features.shape[1],
                generator(self._seed, 0, Purpose.WEIGHTS),
            )
            loss = network.fit(self._sequences[:, rows], self.features[rows], targets)
            members = [
                _Member.of_regression(
                    np.hstack([np.ones((len(read), 1)), self.features, read]),
                    rows,
                    targets,
                    mean,
                    scale,
                )
                for read in network.read(self._sequences)
            ]
            self._learned = told, loss, members
        return self._learned[1:]


class _Member:
    """A Bayesian linear regression on what one LSTM has read; in the losses' own unit."""

    def __init__(
        self, features: Array, mean: Array, variance: Array, covariance: Array, noise: float
    ) -> None:
        self._features, self._covariance, self._noise = features, covariance, noise
        self.mean, self.variance = mean, variance

    @classmethod
    def of_regression(
        cls, features: Array, rows: Array, targets: Array, mean: float, scale: float
    ) -> _Member:
        """Fit to some states (rows) of all (features)."""
        fitted = BayesianRidge(fit_intercept=False).fit(features[rows], targets)
        covariance = scale**2 * fitted.sigma_
        return cls(
            features,
            mean + scale * (features @ fitted.coef_),
            ((features @ covariance) * features).sum(axis=1),
            covariance,
            scale**2 / fitted.alpha_,
        )

    def of(self, states: Sequence[int]) -> _Member:
        """The same of some states alone."""
        rows = np.asarray(states, np.intp)
        own = self._features[rows], self.mean[rows], self.variance[rows]
        return _Member(*own, self._covariance, self._noise)

    def look(self, position: int) -> None:
        """Condition on one loss, measured with noise."""
        toward = self._covariance @ self._features[position]
        column = self._features @ toward
        spread = column[position] + self._noise
        self._covariance = self._covariance - np.outer(toward, toward) / spread
        self.variance = np.maximum(self.variance - column**2 / spread, 0.0)


class _Mixture:
    """What the members believe together: each for itself, and where they differ."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self._members = members
        means = np.array([member.mean for member in members])
        self.mean: Array = means.mean(axis=0)
        self._between: Array = means.var(axis=0)

    @property
    def deviation(self) -> Array:
        """Of the losses, without the noise that a training would add."""
        within = np.mean([member.variance for member in self._members], axis=0)
        deviation: Array = np.sqrt(within + self._between)
        return deviation

    def look(self, position: int) -> None:
        """Condition every member."""
        for member in self._members:
            member.look(position)


def sequences_of(features: Array, groups: Sequence[slice]) -> Array:
    """Write states as sequences: (T, N, F), a group of columns and its name (one-hot) a step."""
    num_states, width = features.shape
    steps = np.zeros((len(groups), num_states, width + len(groups)))
    for step, group in enumerate(groups):
        steps[step][:, group] = features[:, group]
        steps[step][:, width + step] = 1.0
    return steps

"""A Gaussian process on the loss; latency is known, and the reward composed of both by formula.

Batches by upper confidence with hallucinated outcomes (Desautels et al. 2014, GP-BUCB): a state
that was picked lowers the uncertainty of those like it, as if it had come out as predicted, so that
the picks of an episode differ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from controller.encoding import Array
from controller.exploration import Purpose, draw, generator
from controller.stateless import Stateless, not_proposed
from controller.wanted import Wanted, best_of, known_losses
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.search_space import AXES

CONFIDENCE: Final = 1.0
"""Standard deviations by which a loss may turn out lower than predicted."""
FIRST: Final = 4
"""States that are drawn before there is anything to learn from."""
MOST_PAIRED: Final = 3000
"""States of which each is compared with each other one: 72 MB."""
_SIZES: Final = AXES[:4]


class GaussianProcessStrategy(Stateless):
    """Proposes the states whose reward may turn out highest.

    The process sees the four sizes on a logarithmic scale, the activation, and the loss with which
    a state starts where all states were read. It is fitted anew to all that was trained whenever it
    is asked, so it has no state of its own.
    """

    name = "gp"

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known, and describe every state by numbers."""
        super().begin(problem)
        self._features = _features(problem)

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose states by upper confidence; drawn at random before there are losses enough."""
        pool = not_proposed(allowed, history)
        if not pool:
            return []
        known = known_losses(history)
        if len(known) < FIRST:
            return self._first(episode, count, pool)
        wanted = Wanted(self.problem, known)
        process = _fitted(self._features[list(known)], np.array(list(known.values())))
        pool = self._shortlist(pool, process, wanted)
        mean, covariance = process.predict(self._features[pool], return_cov=True)
        noise = _noise(process)
        proposals, taken = [], np.zeros(len(pool), bool)
        for _ in range(min(count, len(pool))):
            deviation = np.sqrt(np.maximum(np.diagonal(covariance) - noise, 0.0))
            hopes = wanted.worth(pool, mean - CONFIDENCE * deviation)
            pick = int(np.argmax(np.where(taken, -math.inf, hopes)))
            taken[pick] = True
            wanted.take(pool[pick], float(mean[pick]))
            expected = self.problem.reward_of(pool[pick], float(mean[pick]))
            proposals.append(Proposal(pool[pick], self.name, expected))
            column = covariance[:, pick] - noise * (np.arange(len(pool)) == pick)
            covariance = covariance - np.outer(column, column) / covariance[pick, pick]
        return proposals

    def _first(self, episode: int, count: int, pool: list[int]) -> list[Proposal]:
        """States to learn from: half by the loss they start with where it is known, half drawn."""
        problem, by_start = self.problem, []
        if len(problem.starts) == len(problem.space):
            starts = np.array([problem.starts[i] for i in pool])
            by_start = [
                Proposal(pool[i], "reading", problem.reward_of(pool[i], float(starts[i])))
                for i in best_of(Wanted(problem, {}), pool, starts, (count + 1) // 2)
            ]
        taken = {proposal.index for proposal in by_start}
        rest = [index for index in pool if index not in taken]
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        drawn = draw(rng, rest, min(count, len(pool)) - len(by_start))
        return [*by_start, *(Proposal(index, "random") for index in drawn)]

    def _shortlist(
        self, pool: list[int], process: GaussianProcessRegressor, wanted: Wanted
    ) -> list[int]:
        """The most hopeful states, as many as a matrix of all pairs may have."""
        if len(pool) <= MOST_PAIRED:
            return pool
        hopes = np.concatenate(
            [
                self._hopes(pool[i : i + MOST_PAIRED], process, wanted)
                for i in range(0, len(pool), MOST_PAIRED)
            ]
        )
        return [pool[i] for i in sorted(np.argsort(-hopes, kind="stable")[:MOST_PAIRED])]

    def _hopes(
        self, pool: Sequence[int], process: GaussianProcessRegressor, wanted: Wanted
    ) -> Array:
        mean, deviation = process.predict(self._features[pool], return_std=True)
        return wanted.worth(pool, mean - CONFIDENCE * deviation)


def _features(problem: SearchProblem) -> Array:
    """Describe states by numbers of a like scale: (states, features)."""
    states = problem.space.states
    columns = [[math.log(getattr(state, axis)) for state in states] for axis in _SIZES]
    columns += [
        [float(state.activation == activation) for state in states]
        for activation in problem.space.activation[1:]
    ]
    if len(problem.starts) == len(states):
        columns.append([problem.starts[index] for index in range(len(states))])
    features = np.array(columns, np.float64).T
    spread = features.std(axis=0)
    varied: Array = features[:, spread > 0]
    scaled: Array = (varied - varied.mean(axis=0)) / spread[spread > 0]
    return scaled


def _fitted(features: Array, losses: Array) -> GaussianProcessRegressor:
    """Fit a process with a length of its own for each feature, by maximum likelihood."""
    lengths = np.ones(features.shape[1])
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(lengths, (5e-2, 1e3), nu=2.5)
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-2, (1e-6, 1.0)), normalize_y=True, random_state=0
    )
    with warnings.catch_warnings():
        # A length at its bound says that a feature does not matter, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(features, losses)


def _noise(process: GaussianProcessRegressor) -> float:
    """Variance of the noise in the unit of the losses."""
    return float(process.kernel_.k2.noise_level * process._y_train_std**2)

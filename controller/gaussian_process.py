"""A Gaussian process on the loss; latency is known, and what is wanted composed of both."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from controller.encoding import Array
from controller.exploration import Purpose, generator
from controller.modelled import LOOKED, Belief, Modelled
from controller.wanted import Wanted
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.specs.strategies import GaussianProcessSpec

MOST_PAIRED: Final = 3000
"""States of which each is compared with each other one, and that are predicted at once: 72 MB."""
SLIGHT: Final = 0.01
"""Share of the noise that a drawn loss has for the sake of numbers."""
MOST_TRIES: Final = 20
"""Each with ten times as much of it; what is finite has a root long before."""


class GaussianProcessStrategy(Modelled):
    """Proposes by a Gaussian process, fitted anew to all that was trained whenever it is asked."""

    name = "gp"

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        super().__init__(spec, space, seed)
        options = spec.strategy.read_as(GaussianProcessSpec)
        self.confidence, self._draws = options.confidence, options.acquisition == "thompson"
        # A draw may put first whom no confidence does.
        self.looked = MOST_PAIRED if self._draws else LOOKED

    def believe(
        self,
        known: Mapping[int, float],
        pool: Sequence[int],
        wanted: Wanted,
        episode: int,
        most: int,
    ) -> tuple[list[int], _Joint]:
        """Fit a process, and look at the most hopeful states, so many as can be compared."""
        process = _fitted(self.features[list(known)], np.array(list(known.values())))
        parts = [
            process.predict(self.features[pool[i : i + MOST_PAIRED]], return_std=True)
            for i in range(0, len(pool), MOST_PAIRED)
        ]
        mean, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
        without_noise = np.sqrt(np.maximum(deviation**2 - _noise(process), 0.0))
        chosen = self.shortlist(pool, mean, without_noise, wanted, most)
        features = self.features[chosen]
        if not self._draws:
            return chosen, _Joint(process, features)
        return chosen, _Drawn(process, features, generator(self._seed, episode, Purpose.BELIEF))

    def hoped(self, belief: Belief) -> Array:
        """Losses within the confidence, or with acquisition ``thompson`` drawn ones."""
        return belief.draw() if isinstance(belief, _Drawn) else super().hoped(belief)


class _Joint:
    """The joint distribution of some states' losses, noise left out."""

    def __init__(self, process: GaussianProcessRegressor, features: Array) -> None:
        self.mean, self._covariance = process.predict(features, return_cov=True)
        self._noise = _noise(process)
        self._covariance[np.diag_indices_from(self._covariance)] -= self._noise

    @property
    def deviation(self) -> Array:
        """Of the losses, without the noise that a training would add."""
        variance: Array = np.maximum(np.diagonal(self._covariance), 0.0)
        return np.sqrt(variance)

    def look(self, position: int) -> None:
        """Condition on one loss, measured with noise."""
        column = self._covariance[:, position].copy()
        self._covariance -= np.outer(column, column) / (column[position] + self._noise)


class _Drawn(_Joint):
    """The same, drawn from anew for each pick (Thompson 1933), so that picks need no look."""

    def __init__(
        self, process: GaussianProcessRegressor, features: Array, rng: np.random.Generator
    ) -> None:
        super().__init__(process, features)
        self._rng = rng
        self._root = _root(self._covariance, SLIGHT * self._noise)

    def draw(self) -> Array:
        """One joint sample of the losses: (N,)."""
        drawn: Array = self.mean + self._root @ self._rng.standard_normal(len(self.mean))
        return drawn

    def look(self, position: int) -> None:
        """Nothing: the next pick is made by another draw."""


def _root(covariance: Array, slight: float) -> Array:
    """L with L·Lᵀ the covariance, and at least something slight more on its diagonal.

    States that are much alike make a covariance singular but for rounding, and then more is needed.
    """
    for _ in range(MOST_TRIES):
        fuller = covariance + slight * np.eye(len(covariance))
        try:
            return np.asarray(np.linalg.cholesky(fuller), np.float64)
        except np.linalg.LinAlgError:
            slight *= 10
    raise ValueError(f"a covariance of {len(covariance)} states has no root; it is not finite")


def _fitted(features: Array, losses: Array) -> GaussianProcessRegressor:
    """Fit a process with a trend and a length of its own for each feature, by maximum likelihood.

    The trend is linear: losses fall with every size on its logarithmic scale, and far from what
    was trained a Matérn kernel alone knows no more of that than their mean.
    """
    lengths = np.ones(features.shape[1])
    bends = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(lengths, (5e-2, 1e3), nu=2.5)
    trend = ConstantKernel(1.0, (1e-3, 1e3)) * DotProduct(1.0, "fixed")
    process = GaussianProcessRegressor(
        bends + trend + WhiteKernel(1e-2, (1e-6, 1.0)), normalize_y=True, random_state=0
    )
    with warnings.catch_warnings():
        # A length at its bound says that a feature does not matter, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(features, losses)


def _noise(process: GaussianProcessRegressor) -> float:
    """Variance of the noise in the unit of the losses."""
    return float(process.kernel_.k2.noise_level * process._y_train_std**2)

"""A Gaussian process on the loss; latency is known, and what is wanted composed of both."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from controller.encoding import Array
from controller.modelled import CONFIDENCE, Modelled
from controller.wanted import Wanted

MOST_PAIRED: Final = 3000
"""States of which each is compared with each other one: 72 MB."""


class GaussianProcessStrategy(Modelled):
    """Proposes by a Gaussian process, fitted anew to all that was trained whenever it is asked."""

    name = "gp"

    def believe(
        self, known: Mapping[int, float], pool: Sequence[int], wanted: Wanted, episode: int
    ) -> tuple[list[int], _Joint]:
        """Fit a process, and look at the most hopeful states, so many as can be compared."""
        process = _fitted(self.features[list(known)], np.array(list(known.values())))
        chosen = self._shortlist(list(pool), process, wanted)
        return chosen, _Joint(process, self.features[chosen])

    def _shortlist(
        self, pool: list[int], process: GaussianProcessRegressor, wanted: Wanted
    ) -> list[int]:
        if len(pool) <= MOST_PAIRED:
            return pool
        hopes = []
        for i in range(0, len(pool), MOST_PAIRED):
            part = pool[i : i + MOST_PAIRED]
            mean, deviation = process.predict(self.features[part], return_std=True)
            hopes.append(wanted.worth(part, mean - CONFIDENCE * deviation))
        best = np.argsort(-np.concatenate(hopes), kind="stable")[:MOST_PAIRED]
        return [pool[i] for i in sorted(best)]


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

"""Least squares and low rank, weighted by what really comes in.

Shapes: N tokens, d width of the rows that a map starts from, D of those it leads to. Products over
tokens are float32; what is solved or decomposed is float64.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.errors import TrainingError

SLIGHT = 1e-5
"""Ridge penalty as a share of the mean variance: enough to solve, too little to bend."""
FLOOR = 1e-6
"""Directions of less variance than this share of the mean count as if they had it."""


class Affine(NamedTuple):
    """x ↦ x·weight + bias; weight (in, out), bias (out,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Map (N, in) to (N, out)."""
        return torch.addmm(self.bias, rows, self.weight)


class Inputs:
    """Rows that several maps start from, with the moments that all of their fits share.

    Maps are fitted in the rows' deviations from their mean, in which the constant is orthogonal to
    everything else. Without biases the mean counts as 0.

    Attributes:
        mean: (d,) mean of the rows; 0 without biases.
        covariance: (d, d) second moments about that mean, float64.
    """

    def __init__(self, rows: Tensor, biased: bool = True) -> None:
        self.mean = rows.mean(0) if biased else rows.new_zeros(rows.shape[1])
        self._biased = biased
        self._centred = rows - self.mean if biased else rows
        self.covariance = (self._centred.T @ self._centred).double() / len(rows)

    @cached_property
    def _regular(self) -> Tensor:
        """Cholesky factor of the covariance, slightly lifted: (d, d), lower."""
        return _cholesky(self.covariance, SLIGHT)

    @cached_property
    def root(self) -> Tensor:
        """L with L·Lᵀ the covariance, float64: Lᵀ·M weighs M by how much of each input occurs."""
        return _cholesky(self.covariance, FLOOR)

    def unweighted(self, matrix: Tensor) -> Tensor:
        """Undo ``root.T @ matrix``."""
        solved: Tensor = torch.linalg.solve_triangular(self.root.T, matrix, upper=True)
        return solved

    def map_to(self, targets: Tensor) -> InputMap:
        """The best linear map from the rows to (N, D) targets, by ridge regression."""
        there = targets.mean(0) if self._biased else targets.new_zeros(targets.shape[1])
        cross = (self._centred.T @ targets).double() / len(targets)
        return InputMap(torch.cholesky_solve(cross, self._regular).float(), there)


class InputMap(NamedTuple):
    """From a student's rows to what its teacher has there: (x − mean)·slope + there.

    Attributes:
        slope: (d, D).
        there: (D,) where the rows' mean goes.
    """

    slope: Tensor
    there: Tensor


def low_rank(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Best factors of a given rank of the product ``left @ right.mH``.

    Args:
        left: (p, m), real or complex.
        right: (q, m).
        rank: columns wanted; beyond the product's own rank they are zero.

    Returns:
        (p, rank) and (q, rank), between which the singular values are shared evenly.
    """
    first, upper = torch.linalg.qr(left)
    second, other = torch.linalg.qr(right)
    u, values, v = torch.linalg.svd(upper @ other.mH, full_matrices=False)
    kept = min(rank, len(values))
    root = values[:kept].sqrt()
    a = first @ (u[:, :kept] * root)
    b = second @ (v[:kept].mH * root)
    return F.pad(a, (0, rank - kept)), F.pad(b, (0, rank - kept))


def by_channel(sources: Tensor, targets: Tensor, biased: bool = True) -> tuple[Tensor, Tensor]:
    """Scale and shift of each channel that bring (N, D) sources closest to targets: (D,) each."""
    if not biased:
        scale = (sources * targets).sum(0) / sources.square().sum(0).clamp_min(1e-9)
        return scale, torch.zeros_like(scale)
    here, there = sources.mean(0), targets.mean(0)
    own = sources - here
    scale = (own * (targets - there)).sum(0) / own.square().sum(0).clamp_min(1e-9)
    return scale, there - here * scale


def least_squares(rows: Tensor, targets: Tensor, penalty: float = 1e-6) -> Tensor:
    """W of the smallest |rows·W − targets|² + penalty·|W|², without bias: (d, D) in float32.

    ``penalty`` is a share of the mean of the rows' squares.
    """
    gram = (rows.T @ rows).double()
    return torch.cholesky_solve((rows.T @ targets).double(), _cholesky(gram, penalty)).float()


def nearest_orthogonal(rows: Tensor, targets: Tensor) -> Tensor:
    """W with orthonormal rows or columns that brings rows closest to targets: (d, D), float32.

    The orthogonal Procrustes problem: W = U·Vᵀ of the singular value decomposition U·Σ·Vᵀ of
    rowsᵀ·targets.
    """
    u, _, v = torch.linalg.svd((rows.T @ targets).double(), full_matrices=False)
    turned: Tensor = (u @ v).float()
    return turned


def _cholesky(matrix: Tensor, share: float) -> Tensor:
    """Cholesky factor of a symmetric matrix with a share of its mean diagonal added.

    Where rounding leaves it indefinite all the same, the share grows tenfold until it is not.

    Raises:
        TrainingError: the matrix is not finite, and no share would do.
    """
    size = matrix.diagonal().mean().clamp_min(1e-12)
    if not torch.isfinite(matrix).all():
        raise TrainingError(
            "no map can be fitted to the states of the calibration text: their products are not "
            "finite; check the weights of the teacher, and of init_from where it is given"
        )
    while True:
        lifted = matrix.clone()
        lifted.diagonal().add_(size * share)
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not failed:
            return factor
        share *= 10

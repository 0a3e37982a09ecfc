"""LayerNorm, refitted: what normalises a student's sums is not what normalised its teacher's."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from kdnas.models.start.linear import by_channel
from kdnas.models.start.weights import Norm


def normalised(rows: Tensor, eps: float) -> Tensor:
    """Rows of mean 0 and deviation 1: (N, d)."""
    return F.layer_norm(rows, rows.shape[-1:], eps=eps)


def unit_factor(norm: Norm) -> float:
    """What makes the mean size of a norm's scales 1, as in a fresh model.

    A learning rate moves all weights alike, whatever their size. Where a teacher's norm has small
    scales, states are small and what reads them is large, and a student learns slowly (measured).
    """
    return 1 / norm.scale.abs().mean().clamp_min(1e-6).item()


def fitted_norm(
    sums: Tensor, targets: Tensor, eps: float, biased: bool = True
) -> tuple[Norm, Tensor]:
    """Scale and shift by which the normalised sums come closest to their targets, and the result.

    Args:
        sums: (N, d) what the norm is given.
        targets: (N, d) what should come out of it.
        eps: of the norm.
        biased: whether the norm has a shift.
    """
    rows = normalised(sums, eps)
    scale, shift = by_channel(rows, targets, biased)
    return Norm(scale, shift), rows * scale + shift

"""The basis: which directions of the teacher's space a student's width is spent on."""

from __future__ import annotations

import torch
from torch import Tensor


def principal_components(covariances: Tensor) -> Tensor:
    """Directions of the sum of covariances, strongest first: (D, D), float32.

    Args:
        covariances: (n, D, D) of the layers that a student ends its own in, each divided by its
            trace, so that a layer of small states counts like any other.
    """
    vectors: Tensor = torch.linalg.eigh(covariances.double().sum(0)).eigenvectors
    return vectors.flip(1).float()


def student_basis(components: Tensor, width: int, seed: int) -> Tensor:
    """P: from the teacher's space to the student's, x ↦ x·P, (D, width).

    The strongest ``width`` components, turned at random: LayerNorm divides by the deviation over
    channels, so each channel should have its share of every component. A student as wide as its
    teacher has the teacher's own channels; a wider one holds them all, turned.
    """
    teacher_width = len(components)
    if width == teacher_width:
        return torch.eye(width).to(components)
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
    kept = min(width, teacher_width)
    turned: Tensor = components[:, :kept] @ turn[:kept].float().to(components)
    return turned

"""The loss between relations as the formula says it: in NumPy, and in plain torch with autograd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def relations(alpha: Any, beta: Any, heads: int) -> Array:
    """Softmax(A_α A_βᵀ / √d_r) of one sequence: (T, D) each → (A_r, T, T)."""
    cut = [
        np.asarray(values, np.float64).reshape(len(values), heads, -1).transpose(1, 0, 2)
        for values in (alpha, beta)
    ]
    scores = cut[0] @ cut[1].transpose(0, 2, 1) / math.sqrt(cut[0].shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = powers / powers.sum(-1, keepdims=True)
    return found


def sequence_losses(
    student: tuple[Tensor, Tensor],
    teacher: tuple[Tensor, Tensor],
    lengths: Sequence[int],
    heads: int,
) -> tuple[Array, Array]:
    """Loss of each sequence, and of a student whose relations are uniform (B,)."""
    losses, baselines = [], []
    for number, length in enumerate(lengths):
        if length == 0:
            losses.append(0.0)
            baselines.append(0.0)
            continue
        p, q = (
            relations(alpha[number, :length].detach(), beta[number, :length].detach(), heads)
            for alpha, beta in (teacher, student)
        )
        losses.append(np.mean(np.sum(p * (np.log(p) - np.log(q)), -1)))
        baselines.append(np.mean(np.sum(p * (np.log(p) + math.log(length)), -1)))
    return np.array(losses), np.array(baselines)


def eager_relation_loss(
    student: tuple[Tensor, Tensor], teacher: tuple[Tensor, Tensor], real: Tensor, heads: int
) -> Tensor:
    """The sum of all sequences' losses with every relation kept for the backward pass."""

    def log_relations(alpha: Tensor, beta: Tensor) -> Tensor:
        a, b = (torch.unflatten(x, -1, (heads, -1)).transpose(1, 2) for x in (alpha, beta))
        scores = a @ b.mT / math.sqrt(a.shape[-1])  # (B, A_r, T, T)
        return scores.masked_fill(~real[:, None, None], -1e30).log_softmax(-1)

    with torch.no_grad():
        target = log_relations(*teacher)
    kl = (target.exp() * (target - log_relations(*student))).sum(-1)  # (B, A_r, T)
    each = (kl * real[:, None]).sum((1, 2)) / (heads * real.sum(1).clamp_min(1))
    return each.sum()

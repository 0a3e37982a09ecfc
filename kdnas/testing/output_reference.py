"""Losses on output distributions in float64 NumPy, written from the formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.taps import Activations
from kdnas.testing.objective_contract import LENGTHS

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def numbers(tensor: Tensor) -> Array:
    """A tensor in float64."""
    values: Array = tensor.detach().double().numpy()
    return values


def places(positions: str) -> list[tuple[int, int]]:
    """(sequence, position) of every place of the made-up batch that counts, in order."""
    real = [(b, t) for b, n in enumerate(LENGTHS) for t in range(n)]
    return real if positions == "all" else real[::3]  # every third token is masked


def rows(states: Activations, layer: int, at: list[tuple[int, int]]) -> Array:
    """Hidden states (M, D) at some places."""
    hidden = numbers(states.hidden[layer])
    return np.stack([hidden[b, t] for b, t in at])


def head_scores(
    head: MaskedLMHead, states: Activations, layer: int, at: list[tuple[int, int]]
) -> Array:
    """Scores (M, V) at some places: dense, GELU, layer norm, embeddings."""
    dense = rows(states, layer, at) @ numbers(head.dense_weight).T + numbers(head.dense_bias)
    gelu = dense * 0.5 * (1 + _erf(dense / math.sqrt(2)))
    centred = gelu - gelu.mean(1, keepdims=True)
    normed = centred / np.sqrt(gelu.var(1, keepdims=True) + 1e-12)
    normed = normed * numbers(head.norm_weight) + numbers(head.norm_bias)
    scores: Array = normed @ numbers(states.word_embeddings).T + numbers(head.bias)
    return scores


def log_softmax(scores: Array) -> Array:
    """Logarithms of the distributions that scores (M, V) stand for."""
    shifted: Any = scores - scores.max(1, keepdims=True)
    log_p: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_p


def output_losses(own: Array, target: Array, temperature: float) -> tuple[float, float, float]:
    """T²·CE, KL, and KL over that of the mean distribution, of scores (M, V)."""
    log_p, log_q = log_softmax(target / temperature), log_softmax(own / temperature)
    p = np.exp(log_p)
    ce = -(p * log_q).sum(1).mean()
    kl = (p * (log_p - log_q)).sum(1).mean()
    useless = (p * (log_p - np.log(p.mean(0)))).sum(1).mean()
    return float(temperature**2 * ce), float(kl), float(kl / useless)


def loosen(head: MaskedLMHead, seed: int) -> None:
    """Bring all numbers of a head far from their start, so that every one counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.5)

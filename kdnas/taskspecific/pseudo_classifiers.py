"""Pseudo-classifiers of the teacher: what each of its layers would say (Wu et al. 2021, §5.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import derived_seed
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.output_space import Numbers, OutputSpace

BATCH_SIZE, WARMUP_FRACTION, WEIGHT_DECAY = 32, 0.1, 0.01
LEAST_DEVIATION = 0.01
"""Of a feature, as a share of its layer's mean: what hardly varies is not blown up."""
_CHUNK = 1024


class PseudoClassifiers(nn.Module):
    """f_i(h_i) = W_i h_i + b_i behind each layer (Eq. 3, b ours; the answers are its softmax).

    Args:
        layers: N.
        width: D.
        outputs: K.
        seed: of W_i; b_i start at ``centre``.
        centre: what all of them say at first: of a regression the mean of its numbers.
    """

    def __init__(
        self, layers: int, width: int, outputs: int, seed: int = 0, centre: float = 0.0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(layers, width, outputs, generator=generator) * 0.02
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.full((layers, outputs), centre))

    def forward(self, states: Tensor) -> Tensor:
        """Map states (B, N, D) to logits (B, N, K), in float32."""
        return torch.einsum("bnd,ndk->bnk", states.float(), self.weight) + self.bias

    @torch.no_grad()
    def fold(self, mean: Tensor, deviation: Tensor) -> None:
        """Take states as they are where classifiers have learned from standardised ones.

        W (h − μ)/σ + b = (W/σ) h + (b − W μ/σ): they stay linear in h.

        Args:
            mean: μ (N, D).
            deviation: σ (N, D).
        """
        self.weight.div_(deviation[:, :, None])
        self.bias.sub_(torch.einsum("nd,ndk->nk", mean, self.weight))


def warm_up(
    states: Tensor,
    examples: Examples,
    space: OutputSpace,
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    standardised: bool = False,
    on_step: Callable[[int, int], None] = lambda *_: None,
) -> PseudoClassifiers:
    """Train the pseudo-classifiers of all layers together by L_CE, with the teacher frozen.

    They share no parameter, so that the sum of their losses trains each as if it were alone. AdamW
    with a rate that falls linearly to 0; the same inputs give the same classifiers.

    Args:
        states: (E, N, D) what the frozen teacher makes of each example.
        examples: E of them.
        space: of the outputs.
        epochs: passes over the examples.
        learning_rate: its peak.
        seed: of the start and of the order.
        standardised: whether they learn from features of mean 0 and deviation 1 each, which is
            ours. The vector of [CLS] of a lower layer may vary by a thousandth of what it is, of
            which a rate that is right for the upper ones learns nothing.
        on_step: is told how many steps are done, and how many there are; may end it by an
            exception.
    """
    centre = float(examples.labels.float().mean()) if isinstance(space, Numbers) else 0.0
    layers, width = states.shape[1:]
    heads = PseudoClassifiers(
        layers, width, space.size, derived_seed("pseudo-classifiers", seed), centre
    )
    scale = moments(states) if standardised else None
    optimizer = torch.optim.AdamW(heads.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    plan = examples.plan(BATCH_SIZE, derived_seed("warm-up", seed) % 2**32)
    steps = epochs * plan.num_batches_per_epoch
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * linear_warmup_decay(step, steps, WARMUP_FRACTION)
        rows = torch.from_numpy(plan.batch_indices(step))
        seen = states[rows] if scale is None else (states[rows].float() - scale[0]) / scale[1]
        losses = space.label_loss(heads(seen), examples.labels[rows][:, None])  # (B, N)
        total: Any = losses.mean(0).sum()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        on_step(step + 1, steps)
    if scale is not None:
        heads.fold(*scale)
    return heads.eval().requires_grad_(False)


def moments(states: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each feature over examples, in float32.

    Sums are of float64, and of few examples at a time: states may be larger than the memory.

    Args:
        states: (E, N, D).

    Returns:
        μ and σ, (N, D) each; σ at least :data:`LEAST_DEVIATION` of its layer's mean, and 1 in a
        layer that says the same of all.
    """
    chunks = [states[start : start + _CHUNK] for start in range(0, len(states), _CHUNK)]
    sums = torch.stack([chunk.double().sum(0) for chunk in chunks])
    mean = sums.sum(0) / len(states)
    squares = torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks])
    deviation = (squares.sum(0) / len(states)).sqrt()
    usual = deviation.mean(-1, keepdim=True)
    least = (LEAST_DEVIATION * usual).where(usual > 0, 1.0)
    return mean.float(), deviation.maximum(least).float()

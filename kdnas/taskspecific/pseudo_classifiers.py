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


def warm_up(
    states: Tensor,
    examples: Examples,
    space: OutputSpace,
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
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
        on_step: is told how many steps are done, and how many there are; may end it by an
            exception.
    """
    centre = float(examples.labels.float().mean()) if isinstance(space, Numbers) else 0.0
    layers, width = states.shape[1:]
    heads = PseudoClassifiers(
        layers, width, space.size, derived_seed("pseudo-classifiers", seed), centre
    )
    optimizer = torch.optim.AdamW(heads.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    plan = examples.plan(BATCH_SIZE, derived_seed("warm-up", seed) % 2**32)
    steps = epochs * plan.num_batches_per_epoch
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * linear_warmup_decay(step, steps, WARMUP_FRACTION)
        rows = torch.from_numpy(plan.batch_indices(step))
        losses = space.label_loss(heads(states[rows]), examples.labels[rows][:, None])  # (B, N)
        total: Any = losses.mean(0).sum()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        on_step(step + 1, steps)
    return heads.eval().requires_grad_(False)

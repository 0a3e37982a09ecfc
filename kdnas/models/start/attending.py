"""Attention over a calibration text, on rows without padding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.models.start.states import Layout
from kdnas.models.start.weights import Attention

Turn = Callable[[Tensor], Tensor]
"""Turns queries or keys (B, A, T, d) by their positions."""


def attend(
    rows: Tensor,
    attention: Attention,
    heads: int,
    layout: Layout,
    turn: Turn | None = None,
    window: int | None = None,
) -> Tensor:
    """What the heads read, before the output's product: (N, d) of (N, d) rows.

    Args:
        rows: what comes into the block.
        attention: its projections.
        heads: A_h.
        layout: of the text.
        turn: rotates queries and keys, where positions are rotary.
        window: tokens that a query sees to either side; None sees the whole sequence.
    """
    width = rows.shape[1]
    joined = torch.cat([attention.query.weight, attention.key.weight, attention.value.weight], 1)
    biases = torch.cat([attention.query.bias, attention.key.bias, attention.value.bias])
    read = torch.empty_like(rows)
    for part, real in layout.blocks():
        projected = rows.new_zeros(*real.shape, 3 * width)
        projected[real] = torch.addmm(biases, rows[part], joined)
        query, key, value = (
            torch.unflatten(t, 2, (heads, -1)).transpose(1, 2) for t in projected.chunk(3, -1)
        )  # (B, A, T, d)
        if turn is not None:
            query, key = turn(query), turn(key)
        mask = real[:, None, None, :]
        if window is not None:
            places = torch.arange(real.shape[1])
            near = (places[:, None] - places[None]).abs() <= window
            # A padded query sees itself, or its softmax would be over nothing.
            mask = (mask & near) | torch.eye(len(places), dtype=torch.bool)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        read[part] = seen.transpose(1, 2).flatten(2)[real]
    return read

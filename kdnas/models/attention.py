"""Attention of students in training: the usual kernel, or plain products where they are faster.

On CPUs the backward pass of torch's fused attention is slow in bfloat16: forward and backward of
32 sequences of 64 tokens with 12 heads of 24 take 60 ms with it and 16 ms as two plain products
with a softmax between (one thread). Plain products keep the T² weights of every head, so long
sequences go to the fused kernel, which does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NAME = "kdnas"
LONGEST_PLAIN = 128
"""Tokens up to which plain products are taken: at 128 they still take a quarter less time."""


def use_training_attention(student: nn.Module) -> None:
    """Let a student choose, call by call, the attention that trains faster."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    student.set_attn_implementation(NAME)  # type: ignore[operator]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend with queries, keys and values (B, A, T, d); return (B, T, A, d)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    plain = (
        query.requires_grad
        and query.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and query.shape[2] <= LONGEST_PLAIN
    )
    if not plain:
        fused: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            **options,
        )
        return fused
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query * scale) @ key.transpose(2, 3)  # (B, A, T, T)
    if attention_mask is not None:  # False where nothing is to be seen
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    weights = F.dropout(weights, dropout, training=dropout > 0)
    return (weights @ value).transpose(1, 2).contiguous(), None

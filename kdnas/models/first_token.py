"""Encoders whose reader looks at each sequence's first token alone: what nobody reads is not run.

A head for classifications reads the first token's state behind the last layer, and nothing else of
it. So the last layer makes keys and values of all tokens, and everything else of the first one:
a sixth of a layer's products. Between the attentions, tokens are one after the other without
padding. What comes out is what the model says by itself, but for the rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.models.attention import LONGEST_PLAIN
from kdnas.models.families import Family


@dataclass(frozen=True)
class _Places:
    """Where the tokens of a batch stand; B sequences, T places each, N of them run.

    All real tokens are run, and so many places of padding that N takes few values: a matrix library
    builds a kernel for each, which takes a millisecond.

    Attributes:
        shape: (B, T).
        run: (N,) places that are run among all B·T; None where all are.
        found: (B·T,) where each place is among those that are run, 0 where it is not.
        first: (B,) where each sequence's first token is among those that are run.
        hidden: (B, 1, 1, T) what is added to scores: 0, or very little where padding is.
    """

    shape: tuple[int, int]
    run: Tensor | None
    found: Tensor | None
    first: Tensor
    hidden: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> _Places:
        """Read a mask (B, T) whose first column is real."""
        real = mask.bool()
        shape = (real.shape[0], real.shape[1])
        every = real.numel()
        hidden = torch.zeros(shape).masked_fill_(~real, torch.finfo(torch.float32).min)
        count = _rounded_up(int(real.sum()))
        if count >= every:
            first = torch.arange(0, every, shape[1])
            return cls(shape, None, None, first, hidden[:, None, None, :])
        run = torch.cat([real.flatten().nonzero(), (~real).flatten().nonzero()])[:count, 0]
        found = torch.zeros(every, dtype=torch.int64)
        found[run] = torch.arange(count)
        return cls(shape, run, found, found[:: shape[1]], hidden[:, None, None, :])

    def packed(self, states: Tensor) -> Tensor:
        """Take what is run of (B, T, D): (N, D)."""
        rows = states.flatten(0, 1)
        if self.run is None:
            return rows
        taken: Tensor = _Taken.apply(rows, self.run)  # type: ignore[no-untyped-call]
        return taken

    def spread(self, states: Tensor, heads: int) -> Tensor:
        """Give heads (B, A, T, d) of what is run (N, D); where padding is, of whatever token."""
        full = states
        if self.run is not None:
            full = _Spread.apply(states, self.run, self.found)  # type: ignore[no-untyped-call]
        return full.view(*self.shape, heads, -1).transpose(1, 2)


def _rounded_up(count: int) -> int:
    """The next of the sixteen numbers, evenly spaced, that stand for all from 2ⁿ to 2ⁿ⁺¹."""
    step = 1 << max(0, count.bit_length() - 5)
    return -(-count // step) * step


class _Taken(torch.autograd.Function):
    """Rows of a matrix, none of them twice, so that their gradient is copied and not added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, taken: Tensor) -> Tensor:
        ctx.save_for_backward(taken)
        ctx.count = len(rows)
        return rows.index_select(0, taken)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (taken,) = ctx.saved_tensors
        full = gradient.new_zeros(ctx.count, gradient.shape[1])
        return full.index_copy_(0, taken, gradient), None


class _Spread(torch.autograd.Function):
    """Rows at their places among all; what stands at other places has no gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, found: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return rows.index_select(0, found)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradient.index_select(0, places), None, None


class FirstTokenPass:
    """Runs a model with BERT's layers on a CPU for a reader of first tokens.

    Between its runs the model is as it was. Dropout is drawn as in the model's own pass, for what
    is run; so its masks are others.

    Args:
        model: encoder and head, of a family that :meth:`serves`.
        family: of the encoder.
    """

    def __init__(self, model: nn.Module, family: Family) -> None:
        self._model, self._family = model, family
        self._encoder = model.get_submodule(str(model.base_model_prefix))

    @staticmethod
    def serves(family: Family) -> bool:
        """Whether a family's layers are run so: those that are made like BERT's."""
        return family.has_bert_layers

    @staticmethod
    def reads(mask: Tensor) -> bool:
        """Whether a batch's mask (B, T) lets it be run so: on the CPU, no padding first."""
        return mask.device.type == "cpu" and bool(mask[:, 0].all())

    def __call__(self, given: Mapping[str, Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run a batch.

        Args:
            given: what the model takes, without the mask.
            mask: (B, T), 1 at real tokens, the first of each sequence among them.

        Returns:
            Logits (B, K), and the first token's state behind each layer, (B, D) each.
        """
        layers = self._family.transformer_layers(self._encoder)
        merged = _Layers(layers, _Places.of(mask))
        self._family.set_layers(self._encoder, nn.ModuleList([merged]))
        try:
            logits = self._model(**given)["logits"]
        finally:
            self._family.set_layers(self._encoder, layers)
        return logits, merged.first


class _Layers(nn.Module):
    """All layers of an encoder as one."""

    def __init__(self, layers: nn.ModuleList, places: _Places) -> None:
        super().__init__()
        self.layers, self.training = layers, layers.training
        self._places = places
        self.first: list[Tensor] = []

    def forward(self, states: Tensor, *_: Any, **__: Any) -> Tensor:
        """Map embeddings (B, T, D) to the first tokens' states behind the last layer, (B, 1, D)."""
        places = self._places
        rows = places.packed(states)  # (N, D)
        *inner, last = self.layers
        for layer in inner:
            rows = _run(layer, rows, rows, places)
            self.first.append(rows[places.first])
        if inner:
            self.first.append(_run(last, rows, self.first[-1], places))
        else:
            self.first.append(_run(last, rows, rows[places.first], places))
        return self.first[-1][:, None]


def _run(layer: Any, rows: Tensor, asking: Tensor, places: _Places) -> Tensor:
    """Run a layer for some of the tokens: all of them (N, D), or the first ones (B, D)."""
    attention = layer.attention.self
    heads, scale = attention.num_attention_heads, attention.scaling
    read = _in_products_format(rows)
    keys, values = (places.spread(m(read), heads) for m in (attention.key, attention.value))
    everyone = asking is rows
    if everyone:
        queries = places.spread(attention.query(read), heads)  # (B, A, T, d)
    else:
        asked = attention.query(_in_products_format(asking))
        queries = asked.view(len(asked), heads, 1, -1)  # (B, A, 1, d)
    found = _attend(queries, keys, values, places.hidden, scale, attention.dropout)
    context = found.transpose(1, 2).flatten(2)  # (B, T or 1, D)
    between = layer.attention.output(places.packed(context) if everyone else context[:, 0], asking)
    states: Tensor = layer.output(layer.intermediate(between), between)
    return states


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor,
    scale: float,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """Attend as two plain products; without gradient or dropout by the fused kernel if that pays.

    On one thread, forward and backward of 32 sequences of 72 tokens with 12 heads of 32 and
    dropout take 53 ms with torch's function in bfloat16 and 49 ms in float32; so they take 18 and
    26 ms.
    """
    active = bool(getattr(dropout, "training", False)) and getattr(dropout, "p", 0.0) > 0
    short = keys.shape[2] <= LONGEST_PLAIN
    plain = short and (queries.requires_grad or queries.dtype == torch.bfloat16)
    bias = hidden.to(queries.dtype)
    if not (active or plain):
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=bias.expand(-1, 1, queries.shape[2], -1), scale=scale
        )
    scores = (queries * scale) @ keys.transpose(2, 3) + bias  # (B, A, T or 1, T)
    return dropout(scores.softmax(-1)) @ values


def _in_products_format(states: Tensor) -> Tensor:
    """Round once what several products of autocast would each round."""
    if torch.is_autocast_enabled(states.device.type):
        return states.to(torch.get_autocast_dtype(states.device.type))
    return states

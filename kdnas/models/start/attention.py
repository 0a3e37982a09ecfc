"""Attention of a student whose heads are some of its teacher's.

What a head does is two bilinear forms: its scores s̃·M·s̃ᵀ with M = W_q·W_kᵀ, and what it writes,
N = W_v·W_o. Both are taken from the teacher, in the student's coordinates, and cut to the width of
a student head where the inputs lose least: the best low-rank approximation, weighted by the
second moments of what really comes in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kdnas.models.start.heads import Chosen, Heads, chosen_heads
from kdnas.models.start.linear import Affine, InputMap, Inputs, low_rank
from kdnas.models.start.weights import Attention

FRESH = 0.02
"""Deviation of values in dimensions that are left over; what multiplies them is 0, so that they
change nothing and can still learn."""


def chosen_attention(
    inputs: Inputs, layers: Sequence[Heads], basis: Tensor, heads: int, generator: torch.Generator
) -> Attention:
    """Attention of a student whose positions are in its embeddings.

    Scores are scaled for another head size: a score is divided by the root of the size. Keys need
    no constant, which shifts all scores of a query alike. Student heads that have one teacher head
    between them share its scores and take successive singular values of what it writes.

    Args:
        inputs: what comes into the student's attention.
        layers: heads to choose from, of the teacher layers that the student's stands for.
        basis: (D, d) from the teacher's space to the student's.
        heads: of the student, A_h.
        generator: of the values in dimensions that are left over.
    """
    width = len(inputs.mean)
    own_size = width // heads
    chosen = chosen_heads(layers, basis, heads)
    root = inputs.root
    query_weights, query_biases, key_weights = [], [], []
    for number, head, _ in chosen:
        layer = layers[number]
        columns = layer.columns(head)
        slope, constant = through(layer.mapped, layer.block.query, columns)
        scale = math.sqrt(own_size / layer.size)
        a, b = low_rank(
            torch.cat([root.T @ slope, constant[None]]) * scale,  # the constant counts 1
            root.T @ through(layer.mapped, layer.block.key, columns)[0],
            own_size,
        )
        query = inputs.unweighted(a[:-1])
        query_weights.append(query)
        query_biases.append(a[-1] - inputs.mean.double() @ query)
        key_weights.append(inputs.unweighted(b))
    value, output = chosen_values(inputs, layers, chosen, basis)
    query_weight, key_weight = _joined(query_weights), _joined(key_weights)
    empty = key_weight.abs().sum(0) == 0
    query_weight[:, empty] = _fresh((width, int(empty.sum())), generator).to(query_weight)
    return Attention(
        Affine(query_weight, torch.cat(query_biases).float()),
        Affine(key_weight, torch.zeros(width).to(key_weight)),
        *fill_values(value, output, generator),
    )


def chosen_values(
    inputs: Inputs, layers: Sequence[Heads], chosen: Sequence[Chosen], basis: Tensor
) -> tuple[Affine, Affine]:
    """Values and output of a student's heads; dimensions that are left over are 0.

    Values have no bias: attention weights sum to 1, so a constant goes into the output's.
    """
    width = len(inputs.mean)
    own_size = width // len(chosen)
    value_weights, output_weights = [], []
    constant = layers[-1].block.output.bias @ basis
    for number, head, part in chosen:
        layer = layers[number]
        columns = layer.columns(head)
        slope, shift = through(layer.mapped, layer.block.value, columns)
        written = (layer.block.output.weight[columns] @ basis).double()  # (d_h, d)
        first = part * own_size
        a, b = low_rank(inputs.root.T @ slope, written.T, first + own_size)
        value_weights.append(inputs.unweighted(a[:, first:]))
        output_weights.append(b[:, first:].T)
        if not part:
            constant = constant + (shift @ written).float()
    value_weight = _joined(value_weights)
    output_weight = torch.cat(output_weights).float()
    shift = inputs.mean @ value_weight @ output_weight
    zeros = torch.zeros(width).to(value_weight)
    return Affine(value_weight, zeros), Affine(output_weight, constant - shift)


def fill_values(value: Affine, output: Affine, generator: torch.Generator) -> tuple[Affine, Affine]:
    """Give the values' empty dimensions something to learn from; nothing is read off them yet."""
    empty = value.weight.abs().sum(0) == 0
    value.weight[:, empty] = _fresh((len(value.weight), int(empty.sum())), generator).to(
        value.weight
    )
    output.weight[empty] = 0.0
    return value, output


def through(
    mapped: InputMap, projection: Affine, columns: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """A teacher's projection in the student's coordinates: slope (d, D) and constant (D,)."""
    weight, bias = projection.weight[:, columns], projection.bias[columns]
    return (mapped.slope @ weight).double(), (mapped.there @ weight + bias).double()


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, 1).float()


def _fresh(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * FRESH

"""Attention of a student whose heads stand for several of its teacher's, or for a part of one.

What a head does is two bilinear forms: its scores s̃·M·s̃ᵀ with M = W_q·W_kᵀ, and what it writes,
N = W_v·W_o. Both are taken from the teacher, in the student's coordinates, and cut to the width of
a student head where the inputs lose least: the best low-rank approximation, weighted by the
second moments of what really comes in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from kdnas.models.start.linear import Affine, InputMap, Inputs, low_rank
from kdnas.models.start.weights import Attention

FRESH = 0.02
"""Deviation of values in dimensions that are left over; what multiplies them is 0, so that they
change nothing and can still learn."""


def merged_attention(
    inputs: Inputs,
    mapped: InputMap,
    teacher: Attention,
    teacher_heads: int,
    groups: Sequence[range],
    basis: Tensor,
    generator: torch.Generator,
) -> Attention:
    """Attention of a student whose positions are in its embeddings.

    Scores of a student head are the mean of its teacher heads' scores, scaled for another head
    size: a score is divided by the root of the size. Keys need no constant, which shifts all
    scores of a query alike. Student heads of one teacher head share its scores and take successive
    singular values of what it writes.

    Args:
        inputs: what comes into the student's attention.
        mapped: from there to what comes into the teacher's.
        teacher: the teacher's attention.
        teacher_heads: its number of heads.
        groups: the teacher heads that each student head stands for.
        basis: (D, d) from the teacher's space to the student's.
        generator: of the values in dimensions that are left over.
    """
    width, heads = len(inputs.mean), len(groups)
    size, own_size = len(teacher.query.bias) // teacher_heads, width // heads
    scale = math.sqrt(own_size / size)
    queries, keys = through(mapped, teacher.query), through(mapped, teacher.key)
    root = inputs.root
    weighted_queries = torch.cat([root.T @ queries[0], queries[1][None]])  # the constant counts 1
    weighted_keys = root.T @ keys[0]
    query_weights, query_biases, key_weights = [], [], []
    for group in groups:
        columns = _columns(group, size)
        a, b = low_rank(
            weighted_queries[:, columns] * (scale / len(group)), weighted_keys[:, columns], own_size
        )
        query = inputs.unweighted(a[:-1])
        key = inputs.unweighted(b)
        query_weights.append(query)
        query_biases.append(a[-1] - inputs.mean.double() @ query)
        key_weights.append(key)
    value, output = merged_values(inputs, mapped, teacher, size, groups, basis)
    query_weight, key_weight = _joined(query_weights), _joined(key_weights)
    empty = key_weight.abs().sum(0) == 0
    query_weight[:, empty] = _fresh((width, int(empty.sum())), generator).to(query_weight)
    return Attention(
        Affine(query_weight, torch.cat(query_biases).float()),
        Affine(key_weight, torch.zeros(width).to(key_weight)),
        *fill_values(value, output, generator),
    )


def merged_values(
    inputs: Inputs,
    mapped: InputMap,
    teacher: Attention,
    size: int,
    groups: Sequence[range],
    basis: Tensor,
) -> tuple[Affine, Affine]:
    """Values and output of a student's heads; dimensions that are left over are 0.

    Values have no bias: attention weights sum to 1, so a constant goes into the output's.
    """
    width = len(inputs.mean)
    own_size = width // len(groups)
    values = through(mapped, teacher.value)
    written = (teacher.output.weight @ basis).double()  # (D, d)
    weighted = inputs.root.T @ values[0]
    places: Counter[range] = Counter()
    value_weights, output_weights = [], []
    for group in groups:
        columns = _columns(group, size)
        first = places[group] * own_size
        places[group] += 1
        a, b = low_rank(weighted[:, columns], written[columns].T, first + own_size)
        value_weights.append(inputs.unweighted(a[:, first:]))
        output_weights.append(b[:, first:].T)
    value_weight = _joined(value_weights)
    output_weight = torch.cat(output_weights).float()
    constant = (values[1] @ written).float() + teacher.output.bias @ basis
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


def through(mapped: InputMap, projection: Affine) -> tuple[Tensor, Tensor]:
    """A teacher's projection in the student's coordinates: slope (d, D) and constant (D,)."""
    weight = projection.weight
    slope, constant = mapped.slope @ weight, mapped.there @ weight + projection.bias
    return slope.double(), constant.double()


def _columns(group: Iterable[int], size: int) -> Tensor:
    return torch.cat([torch.arange(k * size, (k + 1) * size) for k in group])


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, 1).float()


def _fresh(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * FRESH

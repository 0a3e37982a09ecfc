"""Attention whose queries and keys are turned by their positions (rotary, ModernBERT).

A head turns pairs of its values, each pair in a plane and at a frequency of its own, so its basis
cannot be chosen freely. Read as one complex number a plane, q = x·a and k = y·b, a score is
Re Σ q·k̄·e^{iωΔ} for the distance Δ: what can be mixed are forms M = a·bᴴ of planes that turn
alike. So planes of a student go with those planes of its teacher that turn most nearly as fast, and
within such a set the best low-rank form is found as for any attention, in complex numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kdnas.models.families import Rotary
from kdnas.models.start.attention import FRESH, chosen_values, fill_values, through
from kdnas.models.start.heads import Heads, chosen_heads
from kdnas.models.start.linear import Affine, InputMap, Inputs, low_rank
from kdnas.models.start.weights import Attention


def plane_sets(student: Tensor, teacher: Tensor) -> list[tuple[list[int], list[int]]]:
    """Which planes of a student head stand for which planes of a teacher head.

    Args:
        student: (r/2,) frequencies.
        teacher: (d_h/2,) frequencies.

    Returns:
        (student planes, teacher planes) of each set: of the one that has fewer, each plane with all
        of the other's that are nearest to it on a logarithmic scale.
    """
    own, theirs = student.double().log(), teacher.double().log()
    nearest = (own[:, None] - theirs[None]).abs()
    if len(student) < len(teacher):
        best = nearest.argmin(0).tolist()
        found = [([j], [i for i, b in enumerate(best) if b == j]) for j in range(len(student))]
    else:
        best = nearest.argmin(1).tolist()
        found = [([j for j, b in enumerate(best) if b == i], [i]) for i in range(len(teacher))]
    return [(mine, yours) for mine, yours in found if mine]


def chosen_rotary_attention(
    inputs: Inputs,
    layers: Sequence[Heads],
    rotary: tuple[Rotary, Rotary],
    basis: Tensor,
    heads: int,
    generator: torch.Generator,
) -> Attention:
    """Attention of a student whose positions turn its queries and keys.

    Args:
        inputs: what comes into the student's attention.
        layers: heads to choose from, of the teacher layers that the student's stands for.
        rotary: how these layers turn, and how the student's does.
        basis: (D, d) from the teacher's space to the student's.
        heads: of the student, A_h.
        generator: of the values in dimensions that are left over.
    """
    theirs, ours = rotary
    width, size = len(inputs.mean), 2 * len(theirs.frequencies)
    own_size = width // heads
    scale = math.sqrt(own_size / size) * (theirs.scaling / ours.scaling) ** 2
    chosen = chosen_heads(layers, basis, heads)
    query = torch.zeros(width + 1, heads, own_size // 2, dtype=torch.complex128)
    key = torch.zeros_like(query)
    sets = plane_sets(ours.frequencies, theirs.frequencies)
    for own, (number, head, _) in enumerate(chosen):
        layer = layers[number]
        queries, keys = (
            _planes(inputs, layer.mapped, projection, layer.columns(head))
            for projection in (layer.block.query, layer.block.key)
        )
        for mine, yours in sets:
            query[:, own, mine], key[:, own, mine] = low_rank(
                queries[:, yours] * scale, keys[:, yours], len(mine)
            )
    empty = key.abs().sum(0) == 0
    fresh = torch.randn(width, int(empty.sum()), 2, generator=generator, dtype=torch.float64)
    query[:-1, empty] = inputs.root.T.to(query) @ torch.view_as_complex(fresh * FRESH)
    return Attention(
        _projection(inputs, query),
        _projection(inputs, key),
        *fill_values(*chosen_values(inputs, layers, chosen, basis), generator),
    )


def _planes(inputs: Inputs, mapped: InputMap, projection: Affine, columns: slice) -> Tensor:
    """A teacher head's projection by planes, weighted: (d + 1, d_h / 2), complex.

    The last row is the constant.
    """
    slope, constant = through(mapped, projection, columns)
    rows = torch.cat([inputs.root.T @ slope, constant[None]])
    real, imaginary = rows.chunk(2, 1)
    return torch.complex(real, imaginary)


def _projection(inputs: Inputs, planes: Tensor) -> Affine:
    """Undo the weights; heads side by side, in each the real parts before the imaginary ones."""
    rows = torch.stack([planes.real, planes.imag], 2).flatten(1)  # (d + 1, heads · r)
    weight = inputs.unweighted(rows[:-1])
    return Affine(weight.float(), (rows[-1] - inputs.mean.double() @ weight).float())


def turned(values: Tensor, rotary: Rotary) -> Tensor:
    """Turn (B, A, T, d) queries or keys by their places 0 … T − 1."""
    angles = torch.arange(values.shape[2])[:, None] * rotary.frequencies  # (T, d / 2)
    cos, sin = angles.cos() * rotary.scaling, angles.sin() * rotary.scaling
    first, second = values.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

"""A last layer whose queries, keys and values are compared with a teacher's, head by head.

MiniLMv2 compares relations, softmax(A·Aᵀ / √d_r) of queries, keys and values A each cut into
relation heads; DirectMiniLM the cut values themselves, through a map a head. Neither leaves the
basis of a head as free as attention does, which asks for the products of queries with keys alone.
So each relation head keeps the directions in which its own values are largest,
A_S = (d_r^S / d_r^T)^¼ · A_T·Π with Π the strongest eigenvectors of their second moments. Queries
and keys share theirs, so that their products are kept too, and with them the attention weights
where relation heads are attention heads; elsewhere a student's head attends by the sum of the
scores of those it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.models.start.attention import FRESH, fill_values, through
from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.weights import Attention


@dataclass(frozen=True, slots=True)
class Compared:
    """What an objective compares the last student layer's queries, keys and values with.

    Attributes:
        teacher_layer: whose they are, from 1.
        heads: into how many relation heads both are cut, A_r.
    """

    teacher_layer: int
    heads: int


def related_attention(
    inputs: Inputs,
    mapped: InputMap,
    teacher: Attention,
    heads: int,
    basis: Tensor,
    generator: torch.Generator,
) -> Attention:
    """Attention whose relation heads are those of its teacher, cut to the student's width.

    Args:
        inputs: what comes into the student's attention.
        mapped: from there to what comes into the teacher's.
        teacher: the teacher's attention.
        heads: A_r.
        basis: (D, d) from the teacher's space to the student's.
        generator: of the values in dimensions that are left over.
    """
    width = len(inputs.mean)
    query, key, value = (
        _Heads(inputs, *through(mapped, projection), heads)
        for projection in (teacher.query, teacher.key, teacher.value)
    )
    size = width // heads
    shared = _strongest(query.moments + key.moments, size)
    own = _strongest(value.moments, size)
    scale = (size / query.size) ** 0.25
    queries, keys, values = (
        query.cut(shared, scale),
        key.cut(shared, scale),
        value.cut(own, scale),
    )
    empty = queries.weight.abs().sum(0) == 0
    fresh = torch.randn(width, int(empty.sum()), generator=generator) * FRESH
    queries.weight[:, empty] = fresh.to(queries.weight)
    written = torch.unflatten((teacher.output.weight @ basis).double(), 0, (heads, -1))
    output = (own.mT @ written / scale).flatten(0, 1).float()
    value_affine, output_affine = fill_values(
        values, Affine(output, teacher.output.bias @ basis), generator
    )
    return Attention(queries, keys, value_affine, output_affine)


class _Heads:
    """One of a teacher's projections, in the student's coordinates, by relation heads.

    Attributes:
        size: d_r^T.
        moments: (A_r, d_r^T, d_r^T) second moments of each head, each divided by its trace.
    """

    def __init__(self, inputs: Inputs, slope: Tensor, constant: Tensor, heads: int) -> None:
        self._mean = inputs.mean.double()
        self._slope = torch.unflatten(slope, 1, (heads, -1)).transpose(0, 1)  # (A_r, d, d_r^T)
        self._constant = torch.unflatten(constant, 0, (heads, -1))  # (A_r, d_r^T)
        self.size = self._constant.shape[1]
        moments = self._slope.mT @ inputs.covariance @ self._slope
        moments = moments + self._constant[:, :, None] * self._constant[:, None]
        self.moments = (
            moments / moments.diagonal(dim1=1, dim2=2).sum(1).clamp_min(1e-30)[:, None, None]
        )

    def cut(self, directions: Tensor, scale: float) -> Affine:
        """The student's projection: (A_r, d_r^T, d_r^S) directions of each head, side by side."""
        weight = (self._slope @ directions * scale).transpose(0, 1).flatten(1)  # (d, A_r · d_r^S)
        constant = (self._constant[:, None] @ directions * scale).flatten()
        return Affine(weight.float(), (constant - self._mean @ weight).float())


def _strongest(moments: Tensor, size: int) -> Tensor:
    """The strongest eigenvectors of each head, then zeros: (A_r, d_r^T, size)."""
    vectors = torch.linalg.eigh(moments).eigenvectors.flip(2)[:, :, :size]
    return F.pad(vectors, (0, size - vectors.shape[2]))

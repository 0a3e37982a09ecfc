"""Which heads of its teacher a student layer has: those that move the states most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kdnas.models.start.linear import InputMap
from kdnas.models.start.weights import Attention


@dataclass(frozen=True)
class Heads:
    """The heads of one teacher layer, as a student layer could have them.

    Attributes:
        block: the teacher's.
        mapped: from what comes into the student's block to what comes into the teacher's.
        read: (A, d_h, d_h) second moments of what each head reads from the text, before the
            output's product; about the mean where that product has a bias.
        stream: variance of what the block writes into, summed over channels.
    """

    block: Attention
    mapped: InputMap
    read: Tensor
    stream: float

    @property
    def size(self) -> int:
        """d_h."""
        return self.read.shape[1]

    def columns(self, head: int) -> slice:
        """Where a head stands in the projections."""
        return slice(head * self.size, (head + 1) * self.size)

    def effects(self, basis: Tensor) -> Tensor:
        """How much of the stream's variance each head writes, in the student's basis: (A,)."""
        written = torch.unflatten(self.block.output.weight @ basis, 0, (-1, self.size))
        return (self.read @ written * written).sum((1, 2)) / self.stream


class Chosen(NamedTuple):
    """What one student head has.

    Attributes:
        layer: place of the teacher layer among those to choose from.
        head: of that layer.
        part: where several student heads have one between them, which part of what it writes.
    """

    layer: int
    head: int
    part: int


def chosen_heads(layers: Sequence[Heads], basis: Tensor, count: int) -> list[Chosen]:
    """Choose the heads of a student layer, in the order of the teacher's.

    With more heads than there are to choose from, each is cut in as many parts as any other, or
    one more, the strongest first.

    Args:
        layers: heads to choose from.
        basis: (D, d) from the teacher's space to the student's.
        count: heads of the student, A_h.
    """
    places = [(n, head) for n, layer in enumerate(layers) for head in range(len(layer.read))]
    effects = torch.cat([layer.effects(basis) for layer in layers])
    base, extra = divmod(count, len(places))
    found = []
    for rank, place in enumerate(effects.sort(descending=True, stable=True).indices.tolist()):
        layer, head = places[place]
        found += [Chosen(layer, head, part) for part in range(base + (rank < extra))]
    return sorted(found)

"""The walk through a student whose blocks normalise what they read (ModernBERT).

The scale of a norm is taken into the products behind it, so a student's norms begin at 1. What a
block writes is rescaled, channel by channel, to what its teacher's stream moves by on the way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kdnas.models.start.attending import attend
from kdnas.models.start.layers import Share
from kdnas.models.start.linear import Affine, Inputs, by_channel
from kdnas.models.start.norms import normalised
from kdnas.models.start.relations import related_attention
from kdnas.models.start.rotary import chosen_rotary_attention, turned
from kdnas.models.start.walk import (
    ACTIVATIONS,
    Stream,
    Walk,
    silent_attention,
    silent_feed_forward,
)
from kdnas.models.start.weights import Attention, FeedForward, LayerWeights, Norm


class PreNormWalk(Walk):
    """Rotary positions, local attention, gated neurons."""

    def layer(self, number: int, share: Share, own: Stream) -> tuple[LayerWeights, Stream]:
        """Make one layer; see :class:`~kdnas.models.start.walk.Walk`."""
        task, states, (stream, basis) = self.task, self.task.states, own
        built = task.student.layers[number - 1]
        coming = stream if built.attention_norm is None else normalised(stream, task.student.eps)
        attention = self._attention(number, share, coming, basis)
        rotary = task.student.rotary[number - 1]
        if not share.span:
            attention = silent_attention(attention)
        read = attend(
            coming,
            attention,
            task.student.heads,
            task.layout,
            None if rotary is None else lambda values: turned(values, rotary),
            task.student.windows[number - 1],
        )
        between = states.attended(share.target) if share.span else states.hidden(share.target)
        output, middle = _onwards(
            attention.output, read, stream, between @ basis, task.student.attention_biased
        )
        attention = Attention(attention.query, attention.key, attention.value, output)
        coming = normalised(middle, task.student.eps)
        inputs = Inputs(coming, task.student.feed_forward_biased)
        feed_forward = self.feed_forward(
            share, inputs, basis, self._read_by_feed_forward, gated=True
        )
        if not share.span:
            feed_forward = silent_feed_forward(feed_forward)
        inner, gate = feed_forward.inner(coming).chunk(2, 1)
        active = ACTIVATIONS[task.architecture.activation](inner) * gate
        target = states.hidden(share.target) @ basis
        outer, after = _onwards(
            feed_forward.outer, active, middle, target, task.student.feed_forward_biased
        )
        norm = Norm(torch.ones(stream.shape[1]), torch.zeros(stream.shape[1]))
        weights = LayerWeights(
            attention,
            None if built.attention_norm is None else norm,
            FeedForward(feed_forward.inner, outer),
            norm,
        )
        return weights, Stream(after, basis)

    def _attention(self, number: int, share: Share, coming: Tensor, basis: Tensor) -> Attention:
        task, teacher = self.task, self.task.teacher
        inputs = Inputs(coming, task.student.attention_biased)
        # All of one kind, and so turned alike.
        theirs, own = teacher.rotary[share.attention[0] - 1], task.student.rotary[number - 1]
        if theirs is None or own is None:
            raise ValueError("a family that normalises first is expected to have rotary positions")
        compared = task.compared if number == task.architecture.layers else None
        if compared is not None and len(own.frequencies) == len(theirs.frequencies):
            own = theirs  # what is compared is not turned yet: each plane is its own counterpart
        heads = self.heads(share, inputs, self._read_by_attention)
        attention = chosen_rotary_attention(
            inputs, heads, (theirs, own), basis, task.student.heads, task.generator
        )
        if compared is None:
            return attention
        layer = compared.teacher_layer
        related = related_attention(
            inputs,
            inputs.map_to(self._read_by_attention(layer)),
            teacher.layers[layer - 1].attention,
            compared.heads,
            basis,
            task.generator,
        )
        return Attention(attention.query, attention.key, related.value, related.output)

    def _read_by_attention(self, layer: int) -> Tensor:
        """What comes into the attention of a teacher layer: (N, D)."""
        stream = self.task.states.hidden(layer - 1)
        norm = self.task.teacher.layers[layer - 1].attention_norm
        return stream if norm is None else norm(normalised(stream, self.task.teacher.eps))

    def _read_by_feed_forward(self, layer: int) -> Tensor:
        """What comes into the feed-forward block of a teacher layer: (N, D)."""
        norm = self.task.teacher.layers[layer - 1].feed_forward_norm
        stream = self.task.states.attended(layer)
        return stream if norm is None else norm(normalised(stream, self.task.teacher.eps))


def _onwards(
    product: Affine, rows: Tensor, stream: Tensor, target: Tensor, biased: bool
) -> tuple[Affine, Tensor]:
    """Rescale a block's last product to what is missing from the stream; return the sum too."""
    written = product(rows)
    scale, shift = by_channel(written, target - stream, biased)
    fitted = Affine(product.weight * scale, product.bias * scale + shift)
    return fitted, stream + written * scale + shift

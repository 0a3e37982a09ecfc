"""The walk through a student whose blocks normalise the sums they lead to (BERT and its kin)."""

from __future__ import annotations

from torch import Tensor

from kdnas.models.start.attending import attend
from kdnas.models.start.attention import chosen_attention
from kdnas.models.start.layers import Share
from kdnas.models.start.linear import Inputs
from kdnas.models.start.norms import fitted_norm, unit_factor
from kdnas.models.start.relations import related_attention
from kdnas.models.start.walk import (
    ACTIVATIONS,
    Stream,
    Walk,
    silent_attention,
    silent_feed_forward,
)
from kdnas.models.start.weights import Attention, LayerWeights, Norm


class PostNormWalk(Walk):
    """Both norms of a layer are refitted to the teacher's states behind them.

    Behind each the stream is as large as a fresh norm would make it.
    """

    def layer(self, number: int, share: Share, own: Stream) -> tuple[LayerWeights, Stream]:
        """Make one layer; see :class:`~kdnas.models.start.walk.Walk`."""
        task, states = self.task, self.task.states
        attention = self._attention(number, share, own)
        between = states.attended(share.target) if share.span else states.hidden(share.target)
        if not share.span:
            attention = silent_attention(attention)
        read = attend(own.rows, attention, task.student.heads, task.layout)
        sums = own.rows + attention.output(read)
        attention_norm, middle = self._normalised(sums, between, own.basis)
        inputs = Inputs(middle.rows)
        feed_forward = self.feed_forward(share, inputs, middle.basis, states.attended, gated=False)
        if not share.span:
            feed_forward = silent_feed_forward(feed_forward)
        active = ACTIVATIONS[task.architecture.activation](feed_forward.inner(middle.rows))
        sums = middle.rows + feed_forward.outer(active)
        norm, after = self._normalised(sums, states.hidden(share.target), middle.basis)
        return LayerWeights(attention, attention_norm, feed_forward, norm), after

    def _normalised(self, sums: Tensor, theirs: Tensor, basis: Tensor) -> tuple[Norm, Stream]:
        """The norm behind a block, and the stream behind that, which stands for the teacher's."""
        norm, rows = fitted_norm(sums, theirs @ basis, self.task.student.eps)
        factor = unit_factor(norm)
        return norm.times(factor), Stream(rows, basis).times(factor)

    def _attention(self, number: int, share: Share, own: Stream) -> Attention:
        task, teacher = self.task, self.task.teacher
        inputs = Inputs(own.rows)
        if task.compared is not None and number == task.architecture.layers:
            layer = task.compared.teacher_layer
            return related_attention(
                inputs,
                inputs.map_to(task.states.hidden(layer - 1)),
                teacher.layers[layer - 1].attention,
                task.compared.heads,
                own.basis,
                task.generator,
            )
        heads = self.heads(share, inputs, lambda j: task.states.hidden(j - 1))
        return chosen_attention(inputs, heads, own.basis, task.student.heads, task.generator)

"""The walk through a student whose blocks normalise the sums they lead to (BERT and its kin)."""

from __future__ import annotations

from torch import Tensor

from kdnas.models.start.attending import attend
from kdnas.models.start.attention import chosen_attention
from kdnas.models.start.layers import Share
from kdnas.models.start.linear import Inputs
from kdnas.models.start.norms import fitted_norm
from kdnas.models.start.relations import related_attention
from kdnas.models.start.walk import (
    ACTIVATIONS,
    Walk,
    silent_attention,
    silent_feed_forward,
)
from kdnas.models.start.weights import Attention, LayerWeights


class PostNormWalk(Walk):
    """Both norms of a layer are refitted to the teacher's states behind them."""

    def layer(self, number: int, share: Share, own: Tensor) -> tuple[LayerWeights, Tensor]:
        """Make one layer; see :class:`~kdnas.models.start.walk.Walk`."""
        task, states, basis = self.task, self.task.states, self.task.basis
        attention = self._attention(number, share, own)
        if not share.span:
            attention = silent_attention(attention)
        read = attend(own, attention, task.student.heads, task.layout)
        sums = own + attention.output(read)
        target = states.attended(share.target) @ basis
        attention_norm, middle = fitted_norm(sums, target, task.student.eps)
        feed_forward = self.feed_forward(share, Inputs(middle), states.attended, gated=False)
        if not share.span:
            feed_forward = silent_feed_forward(feed_forward)
        active = ACTIVATIONS[task.architecture.activation](feed_forward.inner(middle))
        sums = middle + feed_forward.outer(active)
        target = states.hidden(share.target) @ basis
        norm, after = fitted_norm(sums, target, task.student.eps)
        return LayerWeights(attention, attention_norm, feed_forward, norm), after

    def _attention(self, number: int, share: Share, own: Tensor) -> Attention:
        task, teacher = self.task, self.task.teacher
        inputs = Inputs(own)
        if task.compared is not None and number == task.architecture.layers:
            layer = task.compared.teacher_layer
            return related_attention(
                inputs,
                inputs.map_to(task.states.hidden(layer - 1)),
                teacher.layers[layer - 1].attention,
                task.compared.heads,
                task.basis,
                task.generator,
            )
        heads = self.heads(share, inputs, lambda j: task.states.hidden(j - 1))
        return chosen_attention(inputs, heads, task.basis, task.student.heads, task.generator)

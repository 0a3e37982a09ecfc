"""The walk through a student whose blocks normalise their sums (BERT and its kin).

Layer by layer the student's own states on the calibration text are carried along, so that each
piece is fitted to what really comes in, the errors of the pieces before it included. P is the
basis, s the student's states, H_j and A_j the teacher's behind layer j and behind its attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kdnas.architecture import Architecture
from kdnas.models.start.attending import attend
from kdnas.models.start.attention import merged_attention
from kdnas.models.start.feed_forward import Neurons, chosen_neurons
from kdnas.models.start.layers import Share, head_groups
from kdnas.models.start.linear import Affine, Inputs, identity_map
from kdnas.models.start.norms import fitted_norm
from kdnas.models.start.states import Layout, TeacherStates
from kdnas.models.start.weights import Attention, FeedForward, LayerWeights

EPS = 1e-12


@dataclass(frozen=True)
class Teacher:
    """What the walk knows of a teacher.

    Attributes:
        layers: weights of its layers, first layer first.
        heads: of each of them.
        activation: of its feed-forward blocks.
        eps: of its layer norms.
    """

    layers: tuple[LayerWeights, ...]
    heads: int
    activation: str
    eps: float = EPS


class PostNormWalk:
    """Makes a student's layers one after the other.

    Args:
        teacher: whose pieces are taken.
        states: the teacher's, on the calibration text.
        layout: of that text.
        architecture: of the student.
        basis: P, (D, d).
        generator: of what is left to chance.
    """

    def __init__(
        self,
        teacher: Teacher,
        states: TeacherStates,
        layout: Layout,
        architecture: Architecture,
        basis: Tensor,
        generator: torch.Generator,
    ) -> None:
        self._teacher, self._states, self._layout = teacher, states, layout
        self._student, self._basis, self._generator = architecture, basis, generator
        self._same_width = basis.shape[0] == basis.shape[1]

    def layer(self, share: Share, own: Tensor) -> tuple[LayerWeights, Tensor]:
        """Make one layer.

        Args:
            share: what it stands for.
            own: (N, d) the student's states below it.

        Returns:
            Its weights, and the student's states behind it.
        """
        states, basis, eps = self._states, self._basis, self._teacher.eps
        attention = self._attention(share, own)
        if not share.span:
            attention = _silent_attention(attention)
        read = attend(own, attention, self._student.heads, self._layout)
        sums = own + attention.output(read)
        attention_norm, middle = fitted_norm(sums, states.attended(share.target) @ basis, eps)
        feed_forward = self._feed_forward(share, middle)
        if not share.span:
            feed_forward = _silent_feed_forward(feed_forward)
        active = ACTIVATIONS[self._student.activation](feed_forward.inner(middle))
        sums = middle + feed_forward.outer(active)
        norm, after = fitted_norm(sums, states.hidden(share.target) @ basis, eps)
        return LayerWeights(attention, attention_norm, feed_forward, norm), after

    def _attention(self, share: Share, own: Tensor) -> Attention:
        teacher, heads = self._teacher, self._student.heads
        source = teacher.layers[share.attention - 1].attention
        inputs = Inputs(own)
        if self._same_width and heads == teacher.heads:
            return source  # the teacher's very heads, in its own channels
        mapped = (
            identity_map(inputs)
            if self._same_width
            else inputs.map_to(self._states.hidden(share.attention - 1))
        )
        return merged_attention(
            inputs,
            mapped,
            source,
            teacher.heads,
            head_groups(teacher.heads, heads),
            self._basis,
            self._generator,
        )

    def _feed_forward(self, share: Share, middle: Tensor) -> FeedForward:
        teacher, states = self._teacher, self._states
        inputs = Inputs(middle)
        neurons = [
            Neurons(
                teacher.layers[j - 1].feed_forward,
                identity_map(inputs)
                if self._same_width
                else inputs.map_to(states.attended(j)),
                states.activity(j),
            )
            for j in share.span or (share.target,)
        ]
        return chosen_neurons(
            inputs,
            neurons,
            self._basis,
            self._student.intermediate,
            False,
            self._generator,
            (teacher.activation, self._student.activation),
        )


def _gelu(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x)


ACTIVATIONS = {
    "gelu": _gelu,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
}


def _silent_attention(attention: Attention) -> Attention:
    return Attention(attention.query, attention.key, attention.value, _silent(attention.output))


def _silent_feed_forward(block: FeedForward) -> FeedForward:
    return FeedForward(block.inner, _silent(block.outer))


def _silent(product: Affine) -> Affine:
    return Affine(torch.zeros_like(product.weight), torch.zeros_like(product.bias))

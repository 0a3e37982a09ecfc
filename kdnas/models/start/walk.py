"""What both kinds of walk through a student's layers share.

Layer by layer the student's own states on the calibration text are carried along, so that each
piece is fitted to what really comes in, the errors of the pieces before it included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.models.families import Family, Rotary
from kdnas.models.start.feed_forward import Neurons, chosen_neurons
from kdnas.models.start.heads import Heads
from kdnas.models.start.layers import Share
from kdnas.models.start.linear import Affine, Inputs
from kdnas.models.start.relations import Compared
from kdnas.models.start.states import Layout, TeacherStates
from kdnas.models.start.weights import Attention, FeedForward, LayerWeights, norm_eps, read_layer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": torch.relu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class Model:
    """What the walk knows of a teacher, or of a student whose weights are still to come.

    Attributes:
        layers: weights of its layers, first layer first.
        heads: of each of them.
        activation: of its feed-forward blocks.
        eps: of its layer norms.
        rotary: how each layer turns its queries and keys; None where it does not.
        windows: tokens that each layer sees to either side; None where it is all of them.
        attention_biased: whether the products of its attention blocks have biases.
        feed_forward_biased: whether those of its feed-forward blocks do.
    """

    layers: tuple[LayerWeights, ...]
    heads: int
    activation: str
    eps: float
    rotary: tuple[Rotary | None, ...]
    windows: tuple[int | None, ...]
    attention_biased: bool
    feed_forward_biased: bool

    @classmethod
    def of(cls, model: nn.Module, family: Family) -> Model:
        """Read a model of the family's."""
        layers = family.transformer_layers(model)
        numbers = range(1, len(layers) + 1)
        config = model.config
        attention, feed_forward = (layers[0].get_submodule(path) for path in family.silent)
        return cls(
            tuple(read_layer(family, layer) for layer in layers),
            int(getattr(config, family.config_keys["heads"])),
            str(getattr(config, family.config_keys["activation"])),
            norm_eps(layers[0].get_submodule(family.norms[1])),
            tuple(family.rotary(model, number) for number in numbers),
            tuple(family.window(model, number) for number in numbers),
            getattr(attention, "bias", None) is not None,
            getattr(feed_forward, "bias", None) is not None,
        )


class Stream(NamedTuple):
    """The student's residual stream somewhere on its way, and what it stands for.

    Attributes:
        rows: (N, d).
        basis: (D, d) that brings the teacher's stream there: P, times what norms made of its size.
    """

    rows: Tensor
    basis: Tensor

    def times(self, factor: float) -> Stream:
        """The stream, so many times as large."""
        return Stream(self.rows * factor, self.basis * factor)


@dataclass(frozen=True)
class Task:
    """A student to be made: of which teacher, on which text, of which sizes.

    Attributes:
        teacher: whose pieces are taken.
        student: as built.
        states: the teacher's, on the calibration text.
        layout: of that text.
        architecture: of the student.
        generator: of what is left to chance.
        compared: what the last layer's queries, keys and values are compared with, if with any.
    """

    teacher: Model
    student: Model
    states: TeacherStates
    layout: Layout
    architecture: Architecture
    generator: torch.Generator
    compared: Compared | None = None


class Walk(ABC):
    """Makes a student's layers one after the other."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def layer(self, number: int, share: Share, own: Stream) -> tuple[LayerWeights, Stream]:
        """Make one layer.

        Args:
            number: of the layer, from 1.
            share: what it stands for.
            own: the stream below it.

        Returns:
            Its weights, and the stream behind it.
        """

    def heads(self, share: Share, inputs: Inputs, comes_in: Callable[[int], Tensor]) -> list[Heads]:
        """The heads that a layer chooses from.

        Args:
            share: what the layer stands for.
            inputs: what comes into its attention.
            comes_in: what comes into the attention of a teacher layer, (N, D).
        """
        states, layers = self.task.states, self.task.teacher.layers
        return [
            Heads(
                layers[j - 1].attention,
                inputs.map_to(comes_in(j)),
                states.read(j),
                states.variance(j - 1),
            )
            for j in share.attention
        ]

    def feed_forward(
        self,
        share: Share,
        inputs: Inputs,
        basis: Tensor,
        comes_in: Callable[[int], Tensor],
        gated: bool,
    ) -> FeedForward:
        """A layer's feed-forward block.

        Args:
            share: what the layer stands for.
            inputs: what comes into its block.
            basis: (D, d) of the stream that it writes into.
            comes_in: what comes into the block of a teacher layer, (N, D).
            gated: whether each neuron has a gate.
        """
        task = self.task
        choice = [
            Neurons(
                task.teacher.layers[j - 1].feed_forward,
                inputs.map_to(comes_in(j)),
                task.states.activity(j),
            )
            for j in share.span or share.attention
        ]
        return chosen_neurons(
            inputs,
            choice,
            basis,
            task.architecture.intermediate,
            gated,
            task.generator,
            (task.teacher.activation, task.architecture.activation),
        )


def silent_attention(attention: Attention) -> Attention:
    """The block with nothing written: its layer changes nothing, and can still learn."""
    return Attention(attention.query, attention.key, attention.value, _silent(attention.output))


def silent_feed_forward(block: FeedForward) -> FeedForward:
    """The block with nothing written."""
    return FeedForward(block.inner, _silent(block.outer))


def _silent(product: Affine) -> Affine:
    return Affine(torch.zeros_like(product.weight), torch.zeros_like(product.bias))

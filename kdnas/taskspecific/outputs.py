"""What a network says of a batch of examples: at its end, and layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class NetworkOutputs:
    """Outputs of a student or a teacher.

    B examples, K outputs (classes, or 1 of a regression), L layers, D the network's width.

    Attributes:
        logits: (B, K) what the network itself says, before any softmax.
        layers: (B, L, K) what is said behind each layer, from the first one on: of the teacher by
            its pseudo-classifiers, of the student by its pseudo-classifiers and, behind its last
            layer, by itself. None where nobody asked.
        states: (B, L, D) the vector that stands for the example behind each layer: the hidden state
            of the first token, or what attention-sum pooling gives. None where nobody asked.
    """

    logits: Tensor
    layers: Tensor | None = None
    states: Tensor | None = None

    def layers_needed(self) -> Tensor:
        """The outputs layer by layer, which somebody has asked for."""
        if self.layers is None:
            raise ValueError("nobody asked for the outputs layer by layer")
        return self.layers

    def states_needed(self) -> Tensor:
        """The vectors layer by layer, which somebody has asked for."""
        if self.states is None:
            raise ValueError("nobody asked for the states layer by layer")
        return self.states

"""The feed-forward block: neurons of the teacher, chosen by what they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.weights import FeedForward

_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_accurate")
STEEPNESS = dict.fromkeys(_GELUS, 1.702) | {"quick_gelu": 1.702, "silu": 1.0, "swish": 1.0}
"""gelu(x) is about x·sigmoid(1.702·x), by whatever formula, and silu(x) is x·sigmoid(x)."""


@dataclass(frozen=True)
class Neurons:
    """The neurons of one teacher layer, as a student layer could have them.

    Attributes:
        block: the teacher's.
        mapped: from what comes into the student's block to what comes into the teacher's.
        activity: (f,) deviation of each neuron's output over the calibration text.
    """

    block: FeedForward
    mapped: InputMap
    activity: Tensor


def chosen_neurons(
    inputs: Inputs,
    layers: Sequence[Neurons],
    basis: Tensor,
    size: int,
    gated: bool,
    generator: torch.Generator,
    activations: tuple[str, str],
) -> FeedForward:
    """Take the neurons that move the student's states most, from all layers that it stands for.

    A neuron counts by its deviation times the length of what it writes. Those of n layers write
    1/√n of what they wrote: each was fed what the one before had made of its input, and a norm
    stood between; all at once, with inputs that are guessed, they would drown what comes in
    (measured; where the walk fits each channel's scale, it cancels). A block wider than all of them
    has random neurons besides, which write nothing yet.

    Args:
        inputs: what comes into the student's block.
        layers: neurons to choose from.
        basis: (D, d) from the teacher's space to the student's.
        size: neurons of the student, f.
        gated: whether each neuron has a gate.
        generator: of the random ones.
        activations: names of the teacher's and of the student's.
    """
    written = [layer.block.outer.weight @ basis for layer in layers]  # (f_T, d) each
    effect = torch.cat(
        [layer.activity * w.norm(dim=1) for layer, w in zip(layers, written, strict=True)]
    )
    order = effect.sort(descending=True, stable=True).indices[:size]
    first, inner, constants, outer = 0, [], [], []
    for layer, w in zip(layers, written, strict=True):
        mine = order[(order >= first) & (order < first + len(w))].sort().values - first
        first += len(w)
        columns = torch.cat([mine, mine + len(w)]) if gated else mine
        weight = layer.block.inner.weight[:, columns]
        slope = layer.mapped.slope @ weight
        constant = layer.mapped.there @ weight + layer.block.inner.bias[columns]
        inner.append(slope)
        constants.append(constant - inputs.mean @ slope)
        outer.append(w[mine])
    weight, bias = _joined(inner, gated), _joined([c[None] for c in constants], gated)[0]
    writes = torch.cat(outer) / math.sqrt(len(layers))
    narrow, wide = STEEPNESS.get(activations[1]), STEEPNESS.get(activations[0])
    if narrow and wide and narrow != wide:
        # Of a gated neuron only the half that goes through the activation is stretched.
        stretched = slice(None, len(writes))
        weight[:, stretched] *= wide / narrow
        bias[stretched] *= wide / narrow
        writes = writes * (narrow / wide)
    if missing := size - len(writes):
        weight, bias = _with_fresh(weight, bias, missing, gated, generator)
        writes = torch.cat([writes, writes.new_zeros(missing, writes.shape[1])])
    last = layers[-1].block.outer.bias
    return FeedForward(Affine(weight, bias), Affine(writes, last @ basis))


def _joined(parts: list[Tensor], gated: bool) -> Tensor:
    """Side by side: all inputs of the activation first, then all gates."""
    if not gated:
        return torch.cat(parts, 1)
    halves = [part.chunk(2, 1) for part in parts]
    return torch.cat([h[0] for h in halves] + [h[1] for h in halves], 1)


def _with_fresh(
    weight: Tensor, bias: Tensor, missing: int, gated: bool, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Add random neurons of the same length as the others."""
    width = len(weight)
    length = weight.norm(dim=0).mean() / width**0.5
    halves = (
        list(zip(weight.chunk(2, 1), bias.chunk(2), strict=True)) if gated else [(weight, bias)]
    )
    weights, biases = [], []
    for w, b in halves:
        fresh = torch.randn(width, missing, generator=generator).to(w) * length
        weights += [w, fresh]
        biases += [b, b.new_zeros(missing)]
    return torch.cat(weights, 1), torch.cat(biases)

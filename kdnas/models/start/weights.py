"""The weights of a layer under one set of names, read from and written to any family's modules.

They are read to the CPU, where students begin, wherever the model itself is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kdnas.models.families import Family
from kdnas.models.start.linear import Affine


class Norm(NamedTuple):
    """Scale and shift of a LayerNorm, (d,) each; the shift is 0 where a family has none."""

    scale: Tensor
    shift: Tensor

    def __call__(self, normalised: Tensor) -> Tensor:
        """Apply to rows that are normalised already."""
        return normalised * self.scale + self.shift

    def times(self, factor: float) -> Norm:
        """The norm that gives so many times as much."""
        return Norm(self.scale * factor, self.shift * factor)


@dataclass(frozen=True)
class Attention:
    """Projections of an attention block; biases are 0 where a family has none."""

    query: Affine
    key: Affine
    value: Affine
    output: Affine


@dataclass(frozen=True)
class FeedForward:
    """The two products of a feed-forward block.

    Attributes:
        inner: (d, f) to the neurons; (d, 2f) where they are gated, the gates last.
        outer: (f, d) from the neurons.
    """

    inner: Affine
    outer: Affine


@dataclass(frozen=True)
class LayerWeights:
    """A transformer layer; a norm is None where a layer has none."""

    attention: Attention
    attention_norm: Norm | None
    feed_forward: FeedForward
    feed_forward_norm: Norm | None


def read_layer(family: Family, layer: nn.Module) -> LayerWeights:
    """Read a layer of the family's."""
    found = {name: _affine(module, part) for name, module, part in family.projections(layer)}
    attention_end, feed_forward_end = (_affine(layer.get_submodule(path)) for path in family.silent)
    first, second = (_norm(layer.get_submodule(path)) for path in family.norms)
    inner = _affine(layer.get_submodule(family.inner))
    return LayerWeights(
        Attention(found["q"], found["k"], found["v"], attention_end),
        first,
        FeedForward(inner, feed_forward_end),
        second,
    )


def write_layer(family: Family, layer: nn.Module, weights: LayerWeights) -> None:
    """Write a layer of the family's."""
    own = weights.attention
    parts = {"q": own.query, "k": own.key, "v": own.value}
    for name, module, part in family.projections(layer):
        _write(module, parts[name], part)
    _write(layer.get_submodule(family.silent[0]), own.output)
    _write(layer.get_submodule(family.inner), weights.feed_forward.inner)
    _write(layer.get_submodule(family.silent[1]), weights.feed_forward.outer)
    norms = (weights.attention_norm, weights.feed_forward_norm)
    for path, norm in zip(family.norms, norms, strict=True):
        if norm is not None:
            write_norm(layer.get_submodule(path), norm)


def read_norm(module: nn.Module) -> Norm:
    """Read a LayerNorm.

    Raises:
        TypeError: the module is none.
    """
    norm = _norm(module)
    if norm is None:
        raise TypeError(f"{type(module).__name__} is no LayerNorm")
    return norm


def write_norm(module: nn.Module, norm: Norm) -> None:
    """Write a LayerNorm; the shift goes where there is a place for it."""
    with torch.no_grad():
        module.get_parameter("weight").copy_(norm.scale)
        if getattr(module, "bias", None) is not None:
            module.get_parameter("bias").copy_(norm.shift)


def norm_eps(module: nn.Module) -> float:
    """What a LayerNorm adds to the variance."""
    return float(module.eps) if isinstance(module, nn.LayerNorm) else 1e-12


def _norm(module: nn.Module) -> Norm | None:
    if not isinstance(module, nn.LayerNorm):
        return None  # an Identity, where ModernBERT leaves its first norm out
    scale = module.weight.detach().cpu()
    shift = torch.zeros_like(scale) if module.bias is None else module.bias.detach().cpu()
    return Norm(scale, shift)


def _affine(module: nn.Module, part: int | None = None) -> Affine:
    weight = module.get_parameter("weight").detach().cpu()
    bias = getattr(module, "bias", None)
    bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().cpu()
    if part is not None:
        weight, bias = weight.chunk(3)[part], bias.chunk(3)[part]
    return Affine(weight.T, bias)


def _write(module: nn.Module, values: Affine, part: int | None = None) -> None:
    with torch.no_grad():
        weight = module.get_parameter("weight")
        target = weight if part is None else weight.chunk(3)[part]
        target.copy_(values.weight.T)
        if getattr(module, "bias", None) is not None:
            bias = module.get_parameter("bias")
            (bias if part is None else bias.chunk(3)[part]).copy_(values.bias)

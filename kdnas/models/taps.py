"""Reading hidden states out of a running model.

Forward hooks, not ``output_hidden_states``: they work the same for every family, and nothing is
kept that nobody asked for. Attention maps are never asked for: under sdpa they come back empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from kdnas.models.families import Family


class HiddenStates:
    """Hidden states of one forward pass.

    ``layers`` maps layer (1-based, 0 the embeddings) to (B, T, D). :meth:`rows` gives the real
    tokens alone, (N, D) in float32, gathered once however many students ask.
    """

    def __init__(self, layers: dict[int, Tensor], real_rows: Tensor) -> None:
        self.layers = layers
        self._real_rows = real_rows  # (N,) positions of real tokens in B·T
        self._gathered: dict[int, Tensor] = {}

    def rows(self, layer: int) -> Tensor:
        """Return a layer's states at the real tokens, (N, D) in float32."""
        if layer not in self._gathered:
            flat = self.layers[layer].flatten(0, 1)
            if len(self._real_rows) < len(flat):
                flat = _gather_rows(flat, self._real_rows)
            self._gathered[layer] = flat.float()
        return self._gathered[layer]


class _GatherRows(torch.autograd.Function):
    """Picks distinct rows; its backward pass copies where index_select's would add, which is slow.

    (R, D) and (N,) → (N, D)
    """

    @staticmethod
    def forward(context: Any, flat: Tensor, rows: Tensor) -> Tensor:
        context.save_for_backward(rows)
        context.num_rows = len(flat)
        return flat.index_select(0, rows)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = context.saved_tensors
        padded = gradient.new_zeros(context.num_rows, gradient.shape[1])
        return padded.index_copy_(0, rows, gradient), None


def _gather_rows(flat: Tensor, rows: Tensor) -> Tensor:
    gathered: Tensor = _GatherRows.apply(flat, rows)  # type: ignore[no-untyped-call]
    return gathered


class HiddenStateTap:
    """Keeps the outputs of chosen layers of a model; a context manager around forward passes.

    A hook overwrites what it kept: under activation checkpointing it is called twice.
    """

    def __init__(self, model: nn.Module, family: Family, layers: Iterable[int]) -> None:
        self._kept: dict[int, Tensor] = {}
        self._handles = []
        wanted = sorted(set(layers))
        modules: list[nn.Module] = [
            model.get_submodule("embeddings"),
            *family.transformer_layers(model),
        ]
        projection = getattr(model, "embeddings_project", None)
        if isinstance(projection, nn.Module):  # ELECTRA widens its embeddings afterwards
            modules[0] = projection
        for layer in wanted:
            if layer >= len(modules):
                raise ValueError(f"layer {layer} is above the model's {len(modules) - 1} layers")
            self._handles.append(modules[layer].register_forward_hook(self._keep(layer)))

    def _keep(self, layer: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self._kept[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    def take(self, real_rows: Tensor) -> HiddenStates:
        """Hand out what the last forward pass left, and forget it."""
        kept, self._kept = self._kept, {}
        return HiddenStates(kept, real_rows)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def real_rows(attention_mask: Tensor) -> Tensor:
    """Return the positions of real tokens in the flattened batch: (N,) of B·T."""
    return torch.nonzero(attention_mask.flatten(), as_tuple=True)[0]

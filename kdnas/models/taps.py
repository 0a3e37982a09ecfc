"""Reading hidden states out of a running model.

Forward hooks, not ``output_hidden_states``: they work the same for every family, and nothing is
kept that nobody asked for. Attention maps are never asked for: under sdpa they come back empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from kdnas.models.families import Family


class HiddenStates:
    """Hidden states of one forward pass.

    Losses count real tokens only. They get there by zeros at the padding, not by picking rows: a
    number of rows that is new at each step would make the matrix library build its kernels anew,
    a quarter of a step's time on a CPU.

    Attributes:
        layers: layer (1-based, 0 the embeddings) → (B, T, D).
        num_tokens: real tokens, N.
    """

    def __init__(self, layers: dict[int, Tensor], real_rows: Tensor) -> None:
        self.layers = layers
        self.num_tokens = len(real_rows)
        self._real_rows = real_rows  # (N,) positions of real tokens in R = B·T
        self._masked: dict[int, Tensor] = {}

    def flat(self, layer: int) -> Tensor:
        """Return a layer's states at all places, (R, D) in float32."""
        return self.layers[layer].flatten(0, 1).float()

    @cached_property
    def padding(self) -> Tensor:
        """True at padded places, (R, 1)."""
        batch, length = next(iter(self.layers.values())).shape[:2]
        padding = torch.ones(batch * length, 1, dtype=torch.bool, device=self._real_rows.device)
        return padding.index_fill_(0, self._real_rows, False)

    def masked(self, layer: int) -> Tensor:
        """Return a layer's states, zero at the padding: (R, D) in float32, made once."""
        if layer not in self._masked:
            self._masked[layer] = self.flat(layer).masked_fill(self.padding, 0.0)
        return self._masked[layer]

    def rows(self, layer: int) -> Tensor:
        """Return a layer's states at the real tokens alone, (N, D) in float32."""
        return self.flat(layer).index_select(0, self._real_rows)


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

"""Reading hidden states and Q, K, V out of a running model.

Forward hooks, not ``output_hidden_states``: they work the same for every family, and nothing is
kept that nobody asked for. Attention maps are never asked for: under sdpa they come back empty.
Q, K and V are the outputs of the three projections (for a fused one, its parts), bias included,
before a rotary embedding turns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from kdnas.models.batch import Batch
from kdnas.models.families import Family

Projection = Literal["q", "k", "v"]
PROJECTIONS: tuple[Projection, ...] = ("q", "k", "v")


@dataclass(frozen=True)
class TapPoints:
    """What to read from a model.

    Attributes:
        hidden: layers whose output is kept; 1-based, 0 is the embedding output.
        projections: layers whose Q, K and V are kept, 1-based.
    """

    hidden: frozenset[int] = frozenset()
    projections: frozenset[int] = frozenset()

    def __or__(self, other: TapPoints) -> TapPoints:
        return TapPoints(self.hidden | other.hidden, self.projections | other.projections)

    @classmethod
    def union(cls, points: Iterable[TapPoints]) -> TapPoints:
        """Everything that any of them reads."""
        joined = cls()
        for point in points:
            joined |= point
        return joined

    @property
    def last_layer(self) -> int:
        """The last layer that has to run; 0 is the embeddings."""
        return max(self.hidden | self.projections, default=0)


@dataclass(frozen=True)
class TokenStates:
    """States of a model at the tokens of some text, without padding.

    Attributes:
        hidden: layer → (N, D).
        projections: layer → {"q", "k", "v"} → (N, D), heads side by side.
        word_embeddings: (V, E) the model's table of words.
    """

    hidden: Mapping[int, Tensor]
    projections: Mapping[int, Mapping[Projection, Tensor]]
    word_embeddings: Tensor


class Activations:
    """What one forward pass left behind, and the batch it ran on.

    Losses count real tokens only. They get there by zeros at the padding, not by picking rows: a
    number of rows that is new at each step would make the matrix library build its kernels anew,
    a quarter of a step's time on a CPU.

    Attributes:
        batch: what the model ran on.
        hidden: layer → (B, T, D).
        projections: layer → {"q", "k", "v"} → (B, T, D), heads side by side.
        word_embeddings: the model's table of word embeddings, (V, E), E = D unless factorised.
    """

    def __init__(
        self,
        batch: Batch,
        hidden: dict[int, Tensor],
        projections: dict[int, dict[Projection, Tensor]],
        word_embeddings: Tensor,
    ) -> None:
        self.batch = batch
        self.hidden = hidden
        self.projections = projections
        self.word_embeddings = word_embeddings
        self._masked: dict[int, Tensor] = {}

    def has(self, points: TapPoints) -> bool:
        """Whether all of that can be read here."""
        return points.hidden <= self.hidden.keys() and points.projections <= self.projections.keys()

    def add(self, other: Activations) -> None:
        """Take over the layers of the same batch that only the other has."""
        self.hidden = {**other.hidden, **self.hidden}
        self.projections = {**other.projections, **self.projections}

    @property
    def num_bytes(self) -> int:
        """Memory of the hidden states and projections."""
        projections = (tensor for named in self.projections.values() for tensor in named.values())
        return sum(tensor.nbytes for tensor in (*self.hidden.values(), *projections))

    def flat(self, layer: int) -> Tensor:
        """Return a layer's hidden states at all places, (R, D) in float32."""
        return self.hidden[layer].flatten(0, 1).float()

    def masked(self, layer: int) -> Tensor:
        """Return a layer's hidden states, zero at the padding: (R, D) in float32, made once."""
        if layer not in self._masked:
            self._masked[layer] = self.flat(layer).masked_fill(self.batch.padding, 0.0)
        return self._masked[layer]

    def rows(self, layer: int) -> Tensor:
        """Return a layer's hidden states at the real tokens alone, (N, D) in float32."""
        return self.flat(layer).index_select(0, self.batch.real_rows)


def read_token_states(
    model: nn.Module, family: Family, points: TapPoints, batches: Iterable[Batch]
) -> TokenStates:
    """Run a model over some text and return what it makes of its tokens, in float32."""
    hidden: dict[int, list[Tensor]] = {layer: [] for layer in points.hidden}
    projections: dict[int, dict[Projection, list[Tensor]]] = {
        layer: {name: [] for name in PROJECTIONS} for layer in points.projections
    }
    with torch.no_grad(), Tap(model, family, points) as tap:
        for batch in batches:
            model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            found = tap.take(batch)
            for layer, parts in hidden.items():
                parts.append(found.rows(layer))
            for layer, by_name in projections.items():
                for name, parts in by_name.items():
                    values = found.projections[layer][name].flatten(0, 1).float()
                    parts.append(values.index_select(0, batch.real_rows))
    return TokenStates(
        {layer: torch.cat(parts) for layer, parts in hidden.items()},
        {
            layer: {name: torch.cat(parts) for name, parts in by_name.items()}
            for layer, by_name in projections.items()
        },
        family.word_embeddings(model),
    )


class Tap:
    """Keeps what chosen layers of a model give; a context manager around forward passes.

    A hook overwrites what it kept: under activation checkpointing it is called twice.

    Args:
        model: the encoder.
        family: of the model.
        points: what to read.
    """

    def __init__(self, model: nn.Module, family: Family, points: TapPoints) -> None:
        self._hidden: dict[int, Tensor] = {}
        self._projections: dict[int, dict[Projection, Tensor]] = {}
        self._words = family.word_embeddings(model)
        self._handles = []
        layers = family.transformer_layers(model)
        outputs = [family.embedding_output(model), *layers]
        if len(layers) in points.hidden:
            outputs[-1] = family.encoder_output(model)
        for layer in sorted(points.hidden | points.projections):
            if layer > len(layers):
                raise ValueError(f"layer {layer} is above the model's {len(layers)} layers")
            if layer in points.hidden:
                hook = outputs[layer].register_forward_hook(self._keep_hidden(layer))
                self._handles.append(hook)
            if layer in points.projections:
                for name, module, part in family.projections(layers[layer - 1]):
                    hook = module.register_forward_hook(self._keep_projection(layer, name, part))
                    self._handles.append(hook)

    def _keep_hidden(self, layer: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self._hidden[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    def _keep_projection(self, layer: int, name: Projection, part: int | None) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            kept = output if part is None else output.chunk(3, dim=-1)[part]
            self._projections.setdefault(layer, {})[name] = kept

        return hook

    def forget(self) -> None:
        """Drop what the last forward pass left."""
        self._hidden, self._projections = {}, {}

    def take(self, batch: Batch) -> Activations:
        """Hand out what the last forward pass left, and forget it."""
        hidden, self._hidden = self._hidden, {}
        projections, self._projections = self._projections, {}
        return Activations(batch, hidden, projections, self._words)

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

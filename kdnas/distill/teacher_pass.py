"""The one teacher pass that all students of a group share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from kdnas.corpus.batches import PaddedBatch
from kdnas.distill.numerics import Device, autocast
from kdnas.models.families import Family
from kdnas.models.taps import HiddenStates, HiddenStateTap, real_rows


@dataclass(frozen=True)
class Batch:
    """Tensors of one batch: (B, T) ids and mask, and (N,) positions of real tokens in B·T."""

    input_ids: Tensor
    attention_mask: Tensor
    real_rows: Tensor

    @classmethod
    def of(cls, padded: PaddedBatch, device: Device) -> Batch:
        """Move a padded batch to the device; the positions are found on the CPU, without a sync."""
        mask = torch.from_numpy(padded.attention_mask)
        rows = real_rows(mask)
        return cls(
            torch.from_numpy(padded.input_ids).to(device, non_blocking=True),
            mask.to(device, non_blocking=True),
            rows.to(device, non_blocking=True),
        )

    @property
    def num_tokens(self) -> int:
        """Real tokens in the batch, N."""
        return len(self.real_rows)


def run_encoder(model: nn.Module, batch: Batch, tap: HiddenStateTap) -> HiddenStates:
    """Run an encoder on a batch and return what the tap saw."""
    model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    return tap.take(batch.real_rows)


class TeacherPass:
    """A frozen teacher that runs no layer above the last one that somebody needs.

    A context manager: at the end the teacher has its taps removed and all its layers back.

    Args:
        model: the whole teacher, on its device, frozen, in eval mode.
        family: of the teacher.
        layers: hidden states to keep, 1-based.
        device: where it runs.
        dtype: format of the forward pass in training.
    """

    def __init__(
        self, model: nn.Module, family: Family, layers: Iterable[int], device: Device, dtype: str
    ) -> None:
        needed = frozenset(layers)
        self._model, self._family = model, family
        self._device, self._dtype = device, dtype
        self._all_layers = family.transformer_layers(model)
        self._tap = HiddenStateTap(model, family, needed)
        family.set_layers(model, self._all_layers[: max(needed)])

    def __call__(self, batch: Batch, *, exact: bool = False) -> HiddenStates:
        """Return hidden states of a batch, without gradient; ``exact`` runs in float32."""
        dtype = "float32" if exact else self._dtype
        with torch.no_grad(), autocast(self._device, dtype):
            return run_encoder(self._model, batch, self._tap)

    def close(self) -> None:
        """Give the teacher its layers back and remove the taps."""
        self._tap.close()
        self._family.set_layers(self._model, self._all_layers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

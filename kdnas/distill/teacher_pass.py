"""The one teacher pass that all students of a group share."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch
from torch import nn

from kdnas.distill.numerics import Device, autocast
from kdnas.models.batch import Batch
from kdnas.models.families import Family
from kdnas.models.taps import Activations, Tap, TapPoints


def run_encoder(model: nn.Module, batch: Batch, tap: Tap) -> Activations:
    """Run an encoder on a batch and return what the tap saw."""
    model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    return tap.take(batch)


class TeacherPass:
    """A frozen teacher that runs no layer above the last one that somebody needs.

    Between its runs the teacher is whole, for whoever else runs it meanwhile. A context manager: at
    the end the teacher has its taps removed.

    Args:
        model: the whole teacher, on its device, frozen, in eval mode.
        family: of the teacher.
        points: what to read; an attribute as well.
        device: where it runs.
        dtype: format of the forward pass in training.
    """

    def __init__(
        self, model: nn.Module, family: Family, points: TapPoints, device: Device, dtype: str
    ) -> None:
        self.points = points
        self._model, self._family = model, family
        self._device, self._dtype = device, dtype
        self._all_layers = family.transformer_layers(model)
        self._needed = self._all_layers[: points.last_layer]
        self._tap = Tap(model, family, points)

    def __call__(self, batch: Batch, *, exact: bool = False) -> Activations:
        """Return the activations of a batch, without gradient; ``exact`` runs in float32."""
        dtype = "float32" if exact else self._dtype
        self._family.set_layers(self._model, self._needed)
        try:
            with torch.no_grad(), autocast(self._device, dtype):
                return run_encoder(self._model, batch, self._tap)
        finally:
            self._family.set_layers(self._model, self._all_layers)

    def close(self) -> None:
        """Remove the taps."""
        self._tap.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

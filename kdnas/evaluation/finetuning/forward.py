"""Running a task's model over examples without learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import Device, autocast
from kdnas.errors import TrainingError

Collate = Callable[[Sequence[Any]], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Forward:
    """The forward passes of a model.

    Attributes:
        model: encoder and head, on the device.
        device: that it lies on.
        dtype: of the matrix products.
        batch_size: examples of a pass.
        on_batch: is told after each pass how many items it had, and how many there are.
        before_batch: is called before each pass; may end it by an exception.
    """

    model: nn.Module
    device: Device
    dtype: str
    batch_size: int = 64
    on_batch: Callable[[int, int], None] = lambda *_: None
    before_batch: Callable[[], None] = lambda: None

    def __call__(
        self,
        items: Sequence[Any],
        length: Callable[[Any], int],
        collate: Collate,
        outputs: Sequence[str] = ("logits",),
    ) -> Iterator[tuple[list[int], list[Tensor]]]:
        """Run over items, the longest first, so that little of a batch is padding.

        Args:
            items: in any order.
            length: about how long an item is.
            collate: makes a batch of items, without labels.
            outputs: names of the outputs wanted.

        Yields:
            Places of a batch's items, and its outputs in float32 on the CPU.

        Raises:
            TrainingError: the model gives something that is no number.
        """
        order = sorted(range(len(items)), key=lambda i: length(items[i]), reverse=True)
        was_training = self.model.training
        self.model.eval()
        try:
            for start in range(0, len(order), self.batch_size):
                self.before_batch()
                places = order[start : start + self.batch_size]
                batch = collate([items[i] for i in places])
                with torch.inference_mode(), autocast(self.device, self.dtype):
                    output = self.model(**{k: v.to(self.device) for k, v in batch.items()})
                values = [output[name].float().cpu() for name in outputs]
                if not all(torch.isfinite(value).all() for value in values):
                    raise TrainingError(
                        "the fine-tuned model gives outputs that are no numbers: training has "
                        "diverged; take a smaller `learning_rate`"
                    )
                yield places, values
                self.on_batch(len(places), len(order))
        finally:
            self.model.train(was_training)

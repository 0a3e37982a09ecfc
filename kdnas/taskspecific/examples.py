"""Examples of a task as token ids, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kdnas.corpus.batches import LENGTH_STEP, BatchPlan

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """Examples cut into tokens once, with their labels.

    Attributes:
        input_ids: token ids of each, special tokens included.
        token_types: which text of a pair each token is of; None where a model does not ask.
        labels: (N,) class numbers, int64, or numbers, float32.
        pad_id: token that fills up a batch.
        max_length: tokens that a network has positions for; no example has more.
    """

    input_ids: Sequence[NDArray[np.int64]]
    token_types: Sequence[NDArray[np.int64]] | None
    labels: Tensor
    pad_id: int
    max_length: int

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each, (N,)."""
        return np.array([len(ids) for ids in self.input_ids], np.int64)

    def words(self) -> Indices:
        """All token ids that a batch can have, padding included: sorted, (R,)."""
        return np.unique(np.concatenate([*self.input_ids, np.array([self.pad_id])]))

    def batch(self, indices: Indices) -> TaskBatch:
        """Fetch examples and pad them on the right, in the order of ``indices``.

        T is that of the longest, rounded up to a multiple of eight but not above ``max_length``:
        few shapes, so that a matrix library builds few kernels.
        """
        rows = [self.input_ids[i] for i in indices]
        longest = max(len(row) for row in rows)
        length = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.max_length)
        mask = np.arange(length)[None, :] < np.array([len(row) for row in rows])[:, None]  # (B, T)
        ids = np.full(mask.shape, self.pad_id, np.int64)
        ids[mask] = np.concatenate(rows)
        inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        if self.token_types is not None:
            types = np.zeros(mask.shape, np.int64)
            types[mask] = np.concatenate([self.token_types[i] for i in indices])
            inputs["token_type_ids"] = types
        return TaskBatch(
            indices,
            {name: torch.from_numpy(values) for name, values in inputs.items()},
            self.labels[torch.from_numpy(indices)],
        )

    def plan(self, batch_size: int, seed: int) -> BatchPlan:
        """Say which examples each step of a training learns from, by length and at random.

        A batch takes no more than there are.
        """
        every = np.arange(len(self))
        return BatchPlan(self.lengths, every, min(batch_size, len(self)), seed)

    def in_order(self, batch_size: int) -> list[Indices]:
        """All examples once, the longest first, so that little of a batch is padding."""
        order = np.argsort(-self.lengths, kind="stable")
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


@dataclass(frozen=True)
class TaskBatch:
    """Some examples as tensors.

    Attributes:
        indices: (B,) which ones.
        inputs: ``input_ids``, ``attention_mask`` and perhaps ``token_type_ids``, (B, T) int64.
        labels: (B,).
    """

    indices: Indices
    inputs: dict[str, Tensor]
    labels: Tensor

    def to(self, device: str) -> TaskBatch:
        """Move to a device."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return TaskBatch(self.indices, inputs, self.labels.to(device))

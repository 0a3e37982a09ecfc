"""A batch as the models and the objectives see it: tensors, and what counts in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

MASKED_STEP = 32
"""Numbers of masked places are rounded up to this, so that a step seldom has a new shape."""


@dataclass(frozen=True)
class Totals:
    """What the losses of an optimiser step are divided by: counts over its whole batch.

    A batch may be one of several parts of a step (gradient accumulation, data-parallel workers);
    divided by the same totals, the parts' losses and gradients add up to those of the whole.

    Attributes:
        tokens: real tokens, N.
        sequences: sequences, B.
        masked: places whose token was hidden for masked-LM training.
    """

    tokens: int
    sequences: int
    masked: int = 0

    @classmethod
    def of(cls, attention_mask: NDArray[Any], labels: NDArray[Any] | None = None) -> Self:
        """Count in a whole step's arrays; labels below 0 are not masked places."""
        masked = 0 if labels is None else int((labels >= 0).sum())
        return cls(int(attention_mask.sum()), len(attention_mask), masked)


@dataclass(frozen=True)
class MaskedTokens:
    """The masked places of a batch, filled up with places of weight 0.

    Attributes:
        rows: (M,) positions in the flattened batch, R = B·T.
        labels: (M,) the tokens that stood there.
        weights: (M,) float32, 1 at masked places and 0 at those that fill up.
    """

    rows: Tensor
    labels: Tensor
    weights: Tensor

    @classmethod
    def of(cls, labels: Tensor) -> Self:
        """Find the masked places of (B, T) labels, which are negative everywhere else."""
        flat = labels.flatten()
        rows = torch.nonzero(flat >= 0, as_tuple=True)[0]
        missing = -len(rows) % MASKED_STEP
        weights = torch.cat([torch.ones(len(rows)), torch.zeros(missing)])
        rows = torch.cat([rows, rows.new_zeros(missing)])
        return cls(rows, flat[rows].clamp_min(0), weights)

    def to(self, device: str) -> MaskedTokens:
        """Move to a device."""
        rows, labels, weights = (
            t.to(device, non_blocking=True) for t in (self.rows, self.labels, self.weights)
        )
        return MaskedTokens(rows, labels, weights)


@dataclass(frozen=True)
class Batch:
    """Tensors of one batch, on one device.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 1 at real tokens.
        real_rows: (N,) positions of the tokens that count in the flattened batch, R = B·T.
        totals: what losses are divided by.
        masked: the masked places, if tokens were masked.
    """

    input_ids: Tensor
    attention_mask: Tensor
    real_rows: Tensor
    totals: Totals
    masked: MaskedTokens | None = None

    @classmethod
    def of(
        cls,
        input_ids: NDArray[Any] | Tensor,
        attention_mask: NDArray[Any] | Tensor,
        labels: NDArray[Any] | Tensor | None = None,
        *,
        device: str = "cpu",
        totals: Totals | None = None,
        counts: bool = True,
    ) -> Batch:
        """Make a batch of (B, T) arrays; positions are found on the CPU, without a sync.

        Args:
            input_ids: token ids.
            attention_mask: 1 at real tokens.
            labels: the tokens at masked places, negative elsewhere.
            device: where the tensors go.
            totals: of the whole step, if this is a part of it.
            counts: False for a batch that only keeps a worker in step with the others: all of
                its sums are 0.
        """
        ids, mask = torch.as_tensor(input_ids), torch.as_tensor(attention_mask)
        places = None if labels is None else torch.as_tensor(labels)
        if totals is None:
            totals = Totals.of(mask.numpy(), None if places is None else places.numpy())
        rows = real_rows(mask if counts else torch.zeros_like(mask))
        if places is not None and not counts:
            places = torch.full_like(places, -1)
        masked = None if places is None else MaskedTokens.of(places).to(device)
        ids, mask, rows = (t.to(device, non_blocking=True) for t in (ids, mask, rows))
        return cls(ids, mask, rows, totals, masked)

    @property
    def num_tokens(self) -> int:
        """Real tokens in the batch, N."""
        return len(self.real_rows)

    @cached_property
    def padding(self) -> Tensor:
        """True at the places that do not count, (B·T, 1)."""
        places = self.input_ids.numel()
        padding = torch.ones(places, 1, dtype=torch.bool, device=self.real_rows.device)
        return padding.index_fill_(0, self.real_rows, False)

    @cached_property
    def real(self) -> Tensor:
        """True at the tokens that count, (B, T)."""
        return ~self.padding.view(self.input_ids.shape)


def real_rows(attention_mask: Tensor) -> Tensor:
    """Return the positions of real tokens in the flattened batch: (N,) of B·T."""
    return torch.nonzero(attention_mask.flatten(), as_tuple=True)[0]

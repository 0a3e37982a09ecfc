"""The word embeddings that a task's examples read, apart from those that they never do.

A step's gradient touches the words of its batch, and AdamW moves every word that ever had a
gradient; of all others it only takes the decay. A vocabulary has 30 000 words and a task's examples
a fifth of them, so that most of an optimiser's time goes to rows that only decay. Here those are
multiplied by their decay once an epoch, and the optimiser has a table of the rest: the same numbers
but for the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F


class ReadWords:
    """Stands in for a table of word embeddings while a student learns.

    Args:
        embedding: the student's table (V, E); it is up to date after :meth:`write_back`.
        words: the token ids that batches can have, padding included.

    Attributes:
        weight: (R, E) what the optimiser trains in place of the table.
    """

    def __init__(self, embedding: nn.Embedding, words: NDArray[np.int64]) -> None:
        self._embedding = embedding
        device = embedding.weight.device
        self._rows = torch.from_numpy(words).to(device)
        self._places = torch.zeros(embedding.num_embeddings, dtype=torch.int64, device=device)
        self._places[self._rows] = torch.arange(len(words), device=device)
        self._others = torch.ones(embedding.num_embeddings, dtype=torch.bool, device=device)
        self._others[self._rows] = False
        padding = embedding.padding_idx
        known = padding is not None and not bool(self._others[padding])
        self._padding = int(self._places[padding]) if known else None
        self.weight = nn.Parameter(embedding.weight.detach()[self._rows])
        self.decay = 1.0

    @contextmanager
    def looked_up(self) -> Iterator[None]:
        """Let the student look words up here."""
        self._embedding.forward = self._look_up  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._embedding.forward

    def _look_up(self, input: Tensor) -> Tensor:
        return F.embedding(self._places[input], self.weight, self._padding)

    def decays(self, factor: float) -> None:
        """Note what a step of the optimiser takes from every word."""
        self.decay *= factor

    def write_back(self, *, others: bool) -> None:
        """Bring the student's table up to date.

        Args:
            others: also those that no example reads. When that is done shows in their rounding, so
                it is done at fixed steps.
        """
        table = self._embedding.weight.data
        table[self._rows] = self.weight.detach()
        if others:
            decay = torch.tensor(self.decay, dtype=torch.float64).to(table)
            table.mul_(torch.where(self._others, decay, 1.0)[:, None])
            self.decay = 1.0

    def read_again(self) -> None:
        """Take the words from the student's table."""
        self.weight.data.copy_(self._embedding.weight.detach()[self._rows])

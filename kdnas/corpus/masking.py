"""Hiding tokens as in masked-LM training."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from kdnas.corpus.batches import PaddedBatch
from kdnas.corpus.strata import generator

MASKED_SHARE = 0.15
TO_MASK, TO_RANDOM = 0.8, 0.9  # shares of the hidden tokens, added up
UNMASKED = -100
_MASKING = 4  # tells these draws from other draws of the same seed


@dataclass(frozen=True)
class TokenMasking:
    """How a tokenizer's tokens are hidden.

    Attributes:
        mask_id: the mask token.
        special_ids: tokens that are never hidden, nor put in another's place.
        vocab_size: V.
    """

    mask_id: int
    special_ids: Collection[int]
    vocab_size: int

    def __call__(self, batch: PaddedBatch, *seed: int) -> PaddedBatch:
        """Hide 15 % of a batch's ordinary tokens, at least one if there is any.

        Of those, 80 % become the mask token, 10 % a random one, and 10 % stay (Devlin et al.
        2019 §3.1). The same seed hides the same tokens.

        Returns:
            The batch with ``labels``: the hidden token at its place, −100 elsewhere.
        """
        rng = generator(_MASKING, *seed)
        ordinary = (batch.attention_mask == 1) & ~np.isin(batch.input_ids, list(self.special_ids))
        places = np.flatnonzero(ordinary)
        if len(places):
            places = rng.permutation(places)[: max(1, round(MASKED_SHARE * len(places)))]
        labels = np.full(batch.input_ids.shape, UNMASKED, np.int64)
        hidden = batch.input_ids.copy()
        labels.flat[places] = batch.input_ids.flat[places]
        fate = rng.random(len(places))
        masked = places[fate < TO_MASK]
        swapped = places[(fate >= TO_MASK) & (fate < TO_RANDOM)]
        hidden.flat[masked] = self.mask_id
        hidden.flat[swapped] = rng.choice(self._ordinary_ids(), len(swapped))
        return replace(batch, input_ids=hidden, labels=labels)

    def _ordinary_ids(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.setdiff1d(np.arange(self.vocab_size), list(self.special_ids))

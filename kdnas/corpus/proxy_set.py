"""The proxy set: the share of the training sequences that mini-KD trains on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kdnas.corpus.strata import Indices, stratified_choice
from kdnas.corpus.tokenized import TokenizedCorpus

_PROXY = 2  # tells this choice from the held-out split of the same seed


def proxy_set(corpus: TokenizedCorpus, fraction: float, seed: int) -> Indices:
    """Choose a seeded fraction of the training sequences (Trivedi et al. 2023, §3: 30 %).

    Each language keeps its share, and at least one sequence; the paper does not say how its
    fraction was drawn. A larger fraction of the same seed contains the smaller one.

    Returns:
        (N,) indices of sequences, sorted; the same on every machine.
    """
    indices = corpus.train_indices

    def counts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        chosen: NDArray[np.int64] = np.maximum(np.rint(fraction * sizes).astype(np.int64), 1)
        return chosen

    return stratified_choice(indices, corpus.languages[indices], counts, _PROXY, seed)

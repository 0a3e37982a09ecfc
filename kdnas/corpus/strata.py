"""Seeded choices in which every language keeps its share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def generator(*seed: int) -> np.random.Generator:
    """A generator whose stream depends on these numbers alone, on every machine."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def stratified_choice(
    indices: Indices,
    languages: NDArray[np.uint16],
    counts: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    *seed: int,
) -> Indices:
    """Choose some of the indices of each language.

    A larger count with the same seed contains the smaller one.

    Args:
        indices: (N,) what to choose from.
        languages: (N,) language code of each.
        counts: sizes of the languages → how many to choose of each.
        seed: numbers that name the choice.

    Returns:
        The chosen indices, sorted.
    """
    codes, sizes = np.unique(languages, return_counts=True)
    chosen = [
        generator(*seed, int(code)).permutation(indices[languages == code])[:count]
        for code, count in zip(codes, counts(sizes), strict=True)
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def share_out(sizes: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Share ``total`` among groups by their sizes (largest remainders), leaving one in each."""
    quotas = sizes * (total / max(int(sizes.sum()), 1))
    counts = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: total - int(counts.sum())]] += 1
    shares: NDArray[np.int64] = np.minimum(counts, sizes - 1)
    return shares

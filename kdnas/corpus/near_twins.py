"""Near twins: sequences that are held out although training nearly holds them.

Documentation is copied with a word changed, and a sentence comes back inside a longer text; a
loss that is read on such a sequence tells what was remembered. A sequence's *runs* are its distinct
stretches of four tokens, special tokens included. It has a near twin where one other sequence
holds at least half of its runs (the containment of Broder 1997, *On the resemblance and
containment of documents*).

The runs of the held-out sequences are indexed, and all sequences pass by the index once, so memory
is bounded by the held-out split and not by the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kdnas.corpus.strata import Indices

RUN_TOKENS = 4
TWIN_SHARE = 0.5

_CHUNK_TOKENS = 1 << 19
_CHUNK_COUNTS = 1 << 22
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, and of no small relation with its own powers
_TABLE_BITS = 22

Tokens = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class WithoutTwins:
    """A held-out split after its near twins have left it.

    Attributes:
        held_out: (K,) the sequences that stay, sorted.
        num_moved: how many went to training.
        num_kept: how many near twins stay, for want of others.
    """

    held_out: Indices
    num_moved: int
    num_kept: int


def without_twins(
    tokens: Tokens, offsets: NDArray[np.int64], held_out: Indices, least: int
) -> WithoutTwins:
    """Send held-out sequences that have a near twin in training to training.

    That makes them near twins of others, which follow. If fewer than ``least`` would stay, those
    that are least like training stay as well.

    Args:
        tokens: all sequences, one after the other.
        offsets: (N + 1,) where each begins.
        held_out: (H,) the sequences that were drawn, sorted.
        least: how many have to stay (or all, if there are fewer).
    """
    seen = _likeness(tokens, offsets, held_out)
    likeness = seen.to_training
    while True:
        moved = (likeness >= TWIN_SHARE)[seen.twin]
        grown = likeness.copy()
        np.maximum.at(grown, seen.of[moved], seen.share[moved])
        if np.array_equal(grown, likeness):
            break
        likeness = grown
    num_clean = int((likeness < TWIN_SHARE).sum())
    staying = max(num_clean, min(least, len(held_out)))
    chosen = np.argsort(likeness, kind="stable")[:staying]
    return WithoutTwins(
        np.sort(held_out[chosen]), len(held_out) - staying, num_kept=staying - num_clean
    )


class _Likeness(NamedTuple):
    """Shares of the runs of held-out sequences, here numbered 0 … H − 1, that others hold.

    Attributes:
        to_training: (H,) the largest share that one training sequence holds.
        of: (P,) near twins among the held-out ones: whose runs,
        twin: (P,) who holds them,
        share: (P,) and the share, at least a half.
    """

    to_training: NDArray[np.float64]
    of: Indices
    twin: Indices
    share: NDArray[np.float64]


def _likeness(tokens: Tokens, offsets: NDArray[np.int64], held_out: Indices) -> _Likeness:
    index = _Index(tokens, offsets, held_out)
    to_training = np.zeros(len(held_out))
    number = np.full(len(offsets) - 1, -1)  # of a held-out sequence; −1 for training
    number[held_out] = np.arange(len(held_out))
    among: list[tuple[Indices, Indices, NDArray[np.float64]]] = []
    for first, last in _chunks(offsets, _CHUNK_COUNTS // len(held_out)):
        runs, rows = _runs(tokens[offsets[first] : offsets[last]], offsets[first : last + 1])
        row, of, share = index.shares(runs, rows, last - first)
        twin = number[first + row]
        trained = twin < 0
        np.maximum.at(to_training, of[trained], share[trained])
        near = ~trained & (share >= TWIN_SHARE) & (twin != of)
        among.append((of[near], twin[near], share[near]))
    of, twin, share = (np.concatenate(parts) for parts in zip(*among, strict=True))
    return _Likeness(to_training, of, twin, share)


class _Index:
    """Which held-out sequences hold a run."""

    def __init__(self, tokens: Tokens, offsets: NDArray[np.int64], held_out: Indices) -> None:
        parts = [tokens[offsets[i] : offsets[i + 1]] for i in held_out]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        runs, owners = _runs(np.concatenate(parts), starts)
        self._known, places = np.unique(runs, return_inverse=True)
        self._holders = _ones(places, owners, (len(self._known), len(held_out)))
        self._num_runs = np.asarray(self._holders.sum(axis=0)).ravel()
        # Most runs of a corpus are in no held-out sequence; this tells so without a search.
        self._table = np.zeros(1 << _TABLE_BITS, bool)
        self._table[_slots(self._known)] = True

    def shares(
        self, runs: NDArray[np.uint64], rows: Indices, num_rows: int
    ) -> tuple[Indices, Indices, NDArray[np.float64]]:
        """Which share of a held-out sequence's runs a row holds: (row, sequence, share > 0)."""
        candidates = self._table[_slots(runs)]
        runs, rows = runs[candidates], rows[candidates]
        places = np.searchsorted(self._known, runs)
        places[places == len(self._known)] = 0
        known = self._known[places] == runs if len(self._known) else np.zeros(0, bool)
        held = _ones(rows[known], places[known], (num_rows, len(self._known)))
        common = (held @ self._holders).tocoo()
        return common.row, common.col, common.data / self._num_runs[common.col]


def _ones(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Any:
    """A sparse matrix of ones: a run that comes back within a sequence counts once."""
    from scipy.sparse import csr_array  # takes a moment to load, and only a new corpus comes here

    matrix = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _runs(tokens: Tokens, starts: NDArray[np.int64]) -> tuple[NDArray[np.uint64], Indices]:
    """Hash all runs of some sequences, and say in which one each lies."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    count = max(len(tokens) - RUN_TOKENS + 1, 0)
    hashed = np.zeros(count, np.uint64)
    for shift in range(RUN_TOKENS):
        hashed += tokens[shift : shift + count]
        hashed *= _FACTOR
    inside = rows[:count] == rows[len(rows) - count :]
    return hashed[inside], rows[:count][inside]


def _slots(runs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return runs >> np.uint64(64 - _TABLE_BITS)


def _chunks(offsets: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Cut the sequences into stretches of about half a million tokens, of ``most`` at most."""
    first, end = 0, len(offsets) - 1
    while first < end:
        within = int(np.searchsorted(offsets, offsets[first] + _CHUNK_TOKENS, "right")) - 1
        last = min(max(within, first + 1), first + max(most, 1), end)
        yield first, last
        first = last

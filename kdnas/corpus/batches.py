"""Length-bucketed batches, a pure function of seed and step, padded to their longest sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kdnas.corpus.strata import Indices, generator
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.errors import CorpusError

LENGTH_STEP = 8
BUCKET_BATCHES = 50
_EVALUATION = 3  # tells this choice from other choices of the same seed


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Token ids and mask, both int64 (B, T), T the longest sequence; 0 in the mask is padding.

    ``labels`` are the hidden tokens at their places and negative elsewhere, where any were hidden.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    def rows(self, chosen: slice | Indices) -> PaddedBatch:
        """Return some of the sequences, as wide as the whole."""
        labels = None if self.labels is None else self.labels[chosen]
        return PaddedBatch(self.input_ids[chosen], self.attention_mask[chosen], labels)


def refuse_too_few(num_sequences: int, batch_size: int, also: str = "") -> None:
    """Refuse text that does not fill a batch.

    Args:
        num_sequences: that there are to train on.
        batch_size: of a step.
        also: what else helps, with a comma behind it.

    Raises:
        CorpusError: names the two numbers.
    """
    if num_sequences < batch_size:
        raise CorpusError(
            f"{num_sequences} training sequences are fewer than the batch size {batch_size}; "
            f"give more text, {also}or a smaller batch size"
        )


class BatchPlan:
    """Which sequences each step trains on.

    Every epoch is a new permutation of all sequences: they are shuffled, cut into buckets of
    50 batches, sorted by length within a bucket, cut into batches, and the batches are shuffled.
    An epoch's last short batch is kept (anywhere among the others), so each sequence is seen
    exactly once an epoch. Step s lies in epoch s // num_batches_per_epoch; a resumed run asks for
    the next step and gets what it would have got.

    Args:
        lengths: tokens of every sequence of the corpus.
        indices: the sequences to train on.
        batch_size: sequences of a batch.
        seed: of the order.

    Raises:
        CorpusError: there are fewer sequences than one batch takes.
    """

    def __init__(
        self, lengths: NDArray[np.int64], indices: Indices, batch_size: int, seed: int
    ) -> None:
        refuse_too_few(len(indices), batch_size)
        self._lengths, self._indices = lengths, indices
        self._batch_size, self._seed = batch_size, seed
        self._epoch = -1
        self._batches: list[Indices] = []

    @property
    def num_batches_per_epoch(self) -> int:
        """Batches of an epoch, the last short one included."""
        return -(-len(self._indices) // self._batch_size)

    def batch_indices(self, step: int) -> Indices:
        """Return the sequences of a global step, which counts from 0 over all epochs."""
        if step < 0:
            raise ValueError(f"step {step} is negative; steps count from 0")
        epoch, position = divmod(step, self.num_batches_per_epoch)
        return self.epoch_batches(epoch)[position]

    def epoch_batches(self, epoch: int) -> list[Indices]:
        """Return all batches of an epoch in order."""
        if epoch != self._epoch:
            self._batches, self._epoch = self._make(epoch), epoch
        return self._batches

    def padding_efficiency(self, epoch: int = 0) -> float:
        """Share of real tokens in an epoch's padded batches, 0 … 1."""
        return padding_efficiency(self._lengths, self.epoch_batches(epoch))

    def _make(self, epoch: int) -> list[Indices]:
        rng = generator(self._seed, epoch)
        order = rng.permutation(self._indices)
        batches: list[Indices] = []
        for bucket in _cut(order, BUCKET_BATCHES * self._batch_size):
            by_length = bucket[np.argsort(self._lengths[bucket], kind="stable")]
            batches += _cut(by_length, self._batch_size)
        return [batches[i] for i in rng.permutation(len(batches))]


def pad_batch(corpus: TokenizedCorpus, indices: Indices) -> PaddedBatch:
    """Fetch sequences and pad them on the right, in the order of ``indices``.

    T is the longest sequence, rounded up to a multiple of eight but not above the corpus's
    ``max_length``: few shapes, so that a matrix library builds few kernels.
    """
    lengths = corpus.lengths[indices]
    rounded = -(-int(lengths.max()) // LENGTH_STEP) * LENGTH_STEP
    length = max(int(lengths.max()), min(rounded, int(corpus.meta["max_length"])))
    mask = np.arange(length)[None, :] < lengths[:, None]  # (B, T)
    input_ids = np.full(mask.shape, corpus.pad_id, np.int64)
    input_ids[mask] = np.concatenate([corpus.tokens(i) for i in indices])
    return PaddedBatch(input_ids, mask.astype(np.int64))


def eval_batches(corpus: TokenizedCorpus, batch_size: int, limit: int) -> Iterator[PaddedBatch]:
    """Yield padded batches of at most ``limit`` of the held-out sequences, shortest first.

    The corpus alone decides which, so that students of all seeds are read on the same sequences;
    a larger limit adds to those of a smaller one.
    """
    drawn = generator(_EVALUATION, corpus.seed).permutation(corpus.held_out_indices)
    chosen = np.sort(drawn[:limit])
    by_length = chosen[np.argsort(corpus.lengths[chosen], kind="stable")]
    for batch in _cut(by_length, batch_size):
        yield pad_batch(corpus, batch)


def padding_efficiency(lengths: NDArray[np.int64], batches: Iterable[Indices]) -> float:
    """Real tokens over padded tokens: Σ lengths / Σ B·T; 1 without any batch."""
    real = padded = 0
    for batch in batches:
        real += int(lengths[batch].sum())
        padded += len(batch) * int(lengths[batch].max())
    return real / padded if padded else 1.0


def _cut(values: Indices, size: int) -> list[Indices]:
    return [values[i : i + size] for i in range(0, len(values), size)]

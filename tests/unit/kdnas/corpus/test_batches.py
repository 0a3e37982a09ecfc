"""Batches: permutations, resuming, padding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.corpus.batches import BatchPlan, eval_batches, pad_batch, padding_efficiency
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.errors import CorpusError


def make_lengths(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 257, count)


sizes = st.integers(1, 400)
batch_sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32)


def make_plan(size: int, batch_size: int, seed: int) -> BatchPlan:
    # Any subset will do: every other sequence.
    return BatchPlan(make_lengths(2 * size), np.arange(0, 2 * size, 2), min(size, batch_size), seed)


@given(sizes, batch_sizes, seeds, st.integers(0, 5))
def test_every_sequence_exactly_once_an_epoch(
    size: int, batch_size: int, seed: int, epoch: int
) -> None:
    plan = make_plan(size, batch_size, seed)
    n = plan.num_batches_per_epoch
    batches = [plan.batch_indices(epoch * n + i) for i in range(n)]
    assert sorted(np.concatenate(batches)) == list(range(0, 2 * size, 2))
    full = min(size, batch_size)
    assert sorted((len(b) for b in batches), reverse=True)[: size // full] == [full] * (
        size // full
    )


@given(sizes, batch_sizes, seeds, st.lists(st.integers(0, 1000), min_size=1, max_size=10))
def test_resuming_at_any_step_gives_the_same_batches(
    size: int, batch_size: int, seed: int, steps: list[int]
) -> None:
    plan = make_plan(size, batch_size, seed)
    for step in steps:
        resumed = make_plan(size, batch_size, seed)
        assert np.array_equal(plan.batch_indices(step), resumed.batch_indices(step))


@given(seeds)
def test_epochs_and_seeds_differ(seed: int) -> None:
    plan, other = make_plan(200, 8, seed), make_plan(200, 8, seed + 1)
    first, second = (np.concatenate(plan.epoch_batches(epoch)) for epoch in (0, 1))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.concatenate(other.epoch_batches(0)))


def test_buckets_save_padding() -> None:
    lengths = make_lengths(4000)
    plan = BatchPlan(lengths, np.arange(4000), 32, seed=0)
    unsorted = padding_efficiency(lengths, np.arange(4000).reshape(-1, 32))
    assert unsorted < 0.55
    assert plan.padding_efficiency() > 0.97
    assert padding_efficiency(lengths, []) == 1.0


def test_too_few_sequences_names_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"7 training sequences are fewer than the batch size 8"):
        BatchPlan(make_lengths(10), np.arange(7), 8, seed=0)


def test_negative_step() -> None:
    with pytest.raises(ValueError, match="step -1 is negative"):
        make_plan(10, 2, 0).batch_indices(-1)


def test_padding(corpus: TokenizedCorpus) -> None:
    indices = np.array([5, 0, 17])
    batch = pad_batch(corpus, indices)
    longest = corpus.lengths[indices].max()
    rounded = min(-(-longest // 8) * 8, corpus.meta["max_length"])
    assert batch.input_ids.shape == batch.attention_mask.shape == (3, rounded)
    assert longest <= rounded
    assert batch.input_ids.dtype == batch.attention_mask.dtype == np.int64
    for row, index in enumerate(indices):
        n = corpus.lengths[index]
        assert np.array_equal(batch.input_ids[row, :n], corpus.tokens(index))
        assert (batch.input_ids[row, n:] == corpus.pad_id).all()
        assert batch.attention_mask[row].tolist() == [1] * n + [0] * (rounded - n)


def rows(corpus: TokenizedCorpus, limit: int) -> set[bytes]:
    return {
        row[kept == 1].tobytes()
        for batch in eval_batches(corpus, batch_size=4, limit=limit)
        for row, kept in zip(batch.input_ids, batch.attention_mask, strict=True)
    }


def test_evaluation_batches(corpus: TokenizedCorpus) -> None:
    batches = list(eval_batches(corpus, batch_size=4, limit=10))
    assert [len(b.input_ids) for b in batches] == [4, 4, 2]
    lengths = np.concatenate([b.attention_mask.sum(1) for b in batches])
    assert (np.diff(lengths) >= 0).all()
    again = list(eval_batches(corpus, batch_size=4, limit=10))
    assert all(
        np.array_equal(a.input_ids, b.input_ids) for a, b in zip(batches, again, strict=True)
    )
    held_out = {corpus.tokens(i).astype(np.int64).tobytes() for i in corpus.held_out_indices}
    assert rows(corpus, 10) < rows(corpus, 11) < rows(corpus, 10_000) == held_out


def test_the_content_of_the_corpus_decides_what_is_evaluated(
    corpus: TokenizedCorpus, tmp_path: Path
) -> None:
    shutil.copytree(corpus.folder, tmp_path / "copy")
    assert rows(TokenizedCorpus.open(tmp_path / "copy"), 10) == rows(corpus, 10)
    meta = {**corpus.meta, "fingerprint": "00000000000000ff"}
    (tmp_path / "copy" / "meta.json").write_text(json.dumps(meta))
    other = TokenizedCorpus.open(tmp_path / "copy")
    assert other.seed == 255
    assert rows(other, 10) != rows(corpus, 10)


def test_the_same_on_every_machine() -> None:
    plan = BatchPlan(np.arange(3, 103) % 17, np.arange(100), 3, seed=7)
    assert [plan.batch_indices(step).tolist() for step in (0, 33, 34, 100)] == [
        [32, 49, 83],
        [41, 42, 93],
        [97, 64, 30],
        [82, 99, 65],
    ]

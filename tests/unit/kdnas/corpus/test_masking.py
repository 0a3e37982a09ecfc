from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kdnas.corpus.batches import PaddedBatch
from kdnas.corpus.masking import MASKED_SHARE, UNMASKED, TokenMasking

SPECIAL = (0, 1, 2, 3, 4)  # [PAD] [UNK] [CLS] [SEP] [MASK]
MASK_ID, VOCABULARY = 4, 60
MASKING = TokenMasking(MASK_ID, SPECIAL, VOCABULARY)


def batch_of(lengths: list[int], seed: int = 0) -> PaddedBatch:
    """Sequences of [CLS], so many ordinary tokens, [SEP] and padding."""
    rng = np.random.default_rng(seed)
    longest = max(lengths) + 2
    ids = np.zeros((len(lengths), longest), np.int64)
    for row, length in zip(ids, lengths, strict=True):
        row[: length + 2] = [2, *rng.integers(len(SPECIAL), VOCABULARY, length), 3]
    return PaddedBatch(ids, (np.arange(longest) < np.array(lengths)[:, None] + 2).astype(np.int64))


def hidden_places(batch: PaddedBatch) -> NDArray[np.bool_]:
    assert batch.labels is not None
    return batch.labels != UNMASKED


def ordinary_places(batch: PaddedBatch) -> NDArray[np.bool_]:
    return batch.input_ids >= len(SPECIAL)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**32))
def test_what_holds_for_any_batch(lengths: list[int], seed: int) -> None:
    before = batch_of(lengths, seed)
    ids = before.input_ids.copy()
    after = MASKING(before, seed)
    hidden, ordinary = hidden_places(after), ordinary_places(before)
    assert after.labels is not None
    assert np.array_equal(before.input_ids, ids)  # the batch itself stays as it was
    assert before.labels is None
    assert np.array_equal(after.attention_mask, before.attention_mask)
    assert np.array_equal(after.labels[hidden], ids[hidden])
    assert not (hidden & ~ordinary).any()
    assert np.array_equal(after.input_ids[~hidden], ids[~hidden])
    changed = after.input_ids[hidden & (after.input_ids != ids)]
    assert not np.isin(changed[changed != MASK_ID], SPECIAL).any()
    assert (changed < VOCABULARY).all()
    count = int(ordinary.sum())
    assert hidden.sum() == (max(1, round(MASKED_SHARE * count)) if count else 0)
    again = MASKING(before, seed)
    assert np.array_equal(again.input_ids, after.input_ids)
    assert np.array_equal(again.labels, after.labels)


def test_fifteen_percent_of_which_eighty_ten_and_ten() -> None:
    """Counted over many draws; a random token is the hidden one itself once in 55."""
    batch = batch_of([60] * 40)
    masked = changed = kept = total = 0
    where = np.zeros(batch.input_ids.shape)
    for seed in range(200):
        after = MASKING(batch, seed)
        hidden = hidden_places(after)
        now, then = after.input_ids[hidden], batch.input_ids[hidden]
        masked += int((now == MASK_ID).sum())
        kept += int((now == then).sum())
        changed += int(((now != MASK_ID) & (now != then)).sum())
        total += int(hidden.sum())
        where += hidden
    count = int(ordinary_places(batch).sum())
    assert total == 200 * round(0.15 * count)
    same = 1 / (VOCABULARY - len(SPECIAL))
    for number, share in ((masked, 0.8), (changed, 0.1 * (1 - same)), (kept, 0.1 * (1 + same))):
        deviation = sqrt(share * (1 - share) / total)
        assert number / total == pytest.approx(share, abs=4 * deviation)
    shares = where[ordinary_places(batch)] / 200  # every place alike, within chance
    assert shares.mean() == pytest.approx(0.15)
    assert shares.std() == pytest.approx(sqrt(0.15 * 0.85 / 200), rel=0.1)


def test_random_tokens_are_any_ordinary_ones() -> None:
    batch = batch_of([60] * 40)
    seen: set[int] = set()
    for seed in range(60):
        after = MASKING(batch, seed)
        swapped = hidden_places(after) & (after.input_ids != batch.input_ids)
        seen |= set(after.input_ids[swapped].tolist()) - {MASK_ID}
    assert seen == set(range(len(SPECIAL), VOCABULARY))


def test_seeds_and_steps_hide_different_places() -> None:
    batch = batch_of([30, 20, 10])
    hidden = [hidden_places(MASKING(batch, *seed)).tobytes() for seed in ((0, 1), (0, 2), (1, 1))]
    assert len(set(hidden)) == 3


@pytest.mark.parametrize(("ordinary", "hidden"), [(0, 0), (1, 1), (3, 1), (10, 2), (20, 3)])
def test_at_least_one_token_is_hidden_if_there_is_any(ordinary: int, hidden: int) -> None:
    for seed in range(10):
        assert hidden_places(MASKING(batch_of([ordinary]), seed)).sum() == hidden


def test_the_same_on_every_machine() -> None:
    after = MASKING(batch_of([9, 4]), 7, 3)
    rows, columns = np.nonzero(hidden_places(after))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 5), (0, 8)]

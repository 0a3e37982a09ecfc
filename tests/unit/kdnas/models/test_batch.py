from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kdnas.models.batch import MASKED_STEP, Batch, MaskedTokens, Totals, real_rows

IDS = np.array([[2, 11, 12, 13, 3], [2, 14, 3, 0, 0], [2, 3, 0, 0, 0]])
MASK = (IDS > 0).astype(np.int64)
LABELS = np.full(IDS.shape, -100)
LABELS[0, 2], LABELS[1, 1] = 21, 22


def labels_of(rows: int, length: int, places: list[int]) -> torch.Tensor:
    """Negative everywhere but at some places of the flattened batch, which hold their number."""
    labels = torch.full((rows * length,), -100)
    labels[places] = torch.tensor(places, dtype=torch.int64)
    return labels.view(rows, length)


def test_totals_are_counts_of_a_whole_step() -> None:
    assert Totals.of(MASK) == Totals(tokens=10, sequences=3, masked=0)
    assert Totals.of(MASK, LABELS) == Totals(10, 3, 2)
    zero = np.where(LABELS == 21, 0, LABELS)
    assert Totals.of(MASK, zero).masked == 2  # token 0 is a token


def test_masked_places_are_filled_up_with_weights_of_zero() -> None:
    masked = MaskedTokens.of(torch.from_numpy(LABELS))
    assert masked.rows.shape == masked.labels.shape == masked.weights.shape == (MASKED_STEP,)
    assert masked.rows[:2].tolist() == [2, 6]
    assert masked.labels[:2].tolist() == [21, 22]
    assert masked.weights.tolist() == [1.0, 1.0] + [0.0] * (MASKED_STEP - 2)
    assert masked.weights.dtype == torch.float32


@pytest.mark.parametrize(
    ("count", "length"),
    [(0, 0), (1, MASKED_STEP), (MASKED_STEP, MASKED_STEP), (MASKED_STEP + 1, 2 * MASKED_STEP)],
)
def test_numbers_of_masked_places_are_rounded_up(count: int, length: int) -> None:
    masked = MaskedTokens.of(labels_of(4, 20, list(range(count))))
    assert len(masked.rows) == length
    assert float(masked.weights.sum()) == count


@given(st.integers(1, 6), st.integers(1, 40), st.data())
def test_filling_up_changes_no_weighted_sum(rows: int, length: int, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, rows * length - 1))))
    masked = MaskedTokens.of(labels_of(rows, length, places))
    assert len(masked.rows) % MASKED_STEP == 0
    assert len(masked.rows) - len(places) < MASKED_STEP
    real = masked.weights > 0
    assert masked.rows[real].tolist() == masked.labels[real].tolist() == places
    assert bool((masked.labels >= 0).all())  # a valid index into the vocabulary everywhere
    assert bool((masked.rows < rows * length).all())
    values = torch.arange(rows * length, dtype=torch.float32)
    assert float((values[masked.rows] * masked.weights).sum()) == sum(places)


def test_a_batch_counts_its_real_tokens() -> None:
    batch = Batch.of(IDS, MASK)
    assert batch.input_ids.tolist() == IDS.tolist()
    assert batch.attention_mask.tolist() == MASK.tolist()
    assert batch.real_rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert batch.num_tokens == 10
    assert batch.real.tolist() == MASK.astype(bool).tolist()
    assert batch.padding.flatten().tolist() == (MASK.flatten() == 0).tolist()
    assert batch.totals == Totals(10, 3)
    assert batch.masked is None


def test_arrays_and_tensors_are_the_same() -> None:
    one = Batch.of(IDS, MASK, LABELS)
    other = Batch.of(*(torch.from_numpy(array) for array in (IDS, MASK, LABELS)))
    assert torch.equal(one.input_ids, other.input_ids)
    assert torch.equal(one.real_rows, other.real_rows)
    assert one.totals == other.totals == Totals(10, 3, 2)
    assert one.masked is not None
    assert other.masked is not None
    assert torch.equal(one.masked.labels, other.masked.labels)


def test_a_part_keeps_the_totals_of_its_step() -> None:
    totals = Totals.of(MASK, LABELS)
    parts = [
        Batch.of(IDS[i : i + 1], MASK[i : i + 1], LABELS[i : i + 1], totals=totals)
        for i in range(3)
    ]
    assert [part.totals for part in parts] == [totals] * 3
    assert sum(part.num_tokens for part in parts) == totals.tokens
    weights = [float(part.masked.weights.sum()) for part in parts if part.masked]
    assert weights == [1.0, 1.0, 0.0]


def test_a_batch_that_does_not_count_is_all_padding() -> None:
    """Its arrays are whole, so the models run on it as on any other."""
    totals = Totals(50, 7, 4)
    batch = Batch.of(IDS, MASK, LABELS, totals=totals, counts=False)
    assert batch.input_ids.tolist() == IDS.tolist()
    assert batch.attention_mask.tolist() == MASK.tolist()
    assert batch.num_tokens == 0
    assert not batch.real.any()
    assert batch.padding.all()
    assert batch.totals == totals
    assert batch.masked is not None
    assert len(batch.masked.rows) == 0
    assert Batch.of(IDS, MASK, totals=totals, counts=False).masked is None


def test_real_rows_are_positions_in_the_flattened_batch() -> None:
    mask = torch.tensor([[1, 0, 1], [0, 0, 1]])
    assert real_rows(mask).tolist() == [0, 2, 5]

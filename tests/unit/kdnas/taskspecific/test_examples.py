"""Examples become batches."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kdnas.taskspecific.examples import Examples
from kdnas.testing.tiny_task_training import tiny_examples

PAD = 99


def examples(lengths: list[int], *, types: bool = True, max_length: int = 64) -> Examples:
    rows = [np.arange(1, n + 1) + 100 * i for i, n in enumerate(lengths)]
    kinds = [np.full(n, i % 2) for i, n in enumerate(lengths)]
    labels = torch.arange(len(lengths))
    return Examples(rows, kinds if types else None, labels, PAD, max_length)


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    data=st.data(),
)
def test_a_batch_has_its_examples_in_order_and_nothing_else(
    lengths: list[int], data: st.DataObject
) -> None:
    made = examples(lengths)
    order = np.array(data.draw(st.permutations(range(len(lengths)))))
    batch = made.batch(order)
    ids, mask, types = (
        batch.inputs[name].numpy() for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    assert ids.shape == mask.shape == types.shape
    assert ids.shape[1] % 8 == 0
    assert ids.shape[1] - max(lengths) < 8
    for row, number in enumerate(order):
        n = lengths[number]
        assert (ids[row, :n] == made.input_ids[number]).all()
        assert (types[row, :n] == number % 2).all()
        assert (ids[row, n:] == PAD).all()
        assert not types[row, n:].any()
        assert mask[row].tolist() == [1] * n + [0] * (ids.shape[1] - n)
    assert batch.labels.tolist() == order.tolist()
    assert made.lengths.tolist() == lengths


def test_no_batch_is_longer_than_a_network_has_positions() -> None:
    made = examples([3, 61, 7], max_length=61)
    for chosen, length in (([0], 8), ([1, 2], 61)):
        batch = made.batch(np.array(chosen))
        assert {t.shape[1] for t in batch.inputs.values()} == {length}


def test_token_types_are_left_out_where_a_model_does_not_ask() -> None:
    batch = examples([3, 4], types=False).batch(np.array([1, 0]))
    assert batch.inputs.keys() == {"input_ids", "attention_mask"}
    assert all(tensor.dtype == torch.int64 for tensor in batch.inputs.values())


def test_labels_keep_their_type() -> None:
    assert tiny_examples(4).batch(np.array([0])).labels.dtype == torch.int64
    assert tiny_examples(4, numbers=True).batch(np.array([0])).labels.dtype == torch.float32


def test_an_epoch_sees_every_example_once() -> None:
    made = tiny_examples(21)
    plan = made.plan(8, seed=3)
    assert plan.num_batches_per_epoch == 3
    for epoch in (0, 1):
        seen = np.concatenate([plan.batch_indices(3 * epoch + step) for step in range(3)])
        assert sorted(seen) == list(range(21))


def test_a_batch_takes_no_more_than_there_are() -> None:
    plan = tiny_examples(5).plan(32, seed=0)
    assert plan.num_batches_per_epoch == 1
    assert len(plan.batch_indices(0)) == 5


def test_in_order_the_longest_come_first() -> None:
    made = examples([3, 9, 1, 9, 5])
    batches = made.in_order(2)
    assert [batch.tolist() for batch in batches] == [[1, 3], [4, 0], [2]]


def test_all_words_of_the_batches_are_known() -> None:
    made = examples([3, 1, 2])
    assert made.words().tolist() == [1, 2, 3, PAD, 101, 201, 202]

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from kdnas.models.batch import Batch
from kdnas.models.start.repeated import repeated

PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 3


def batch_of(*sentences: list[int]) -> Batch:
    width = max(map(len, sentences))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in sentences])
    return Batch.of(ids, (ids != PAD).long())


def rows_of(batch: Batch) -> list[list[int]]:
    return [
        ids[mask.bool()].tolist()
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]


def test_a_text_stands_behind_itself() -> None:
    found = repeated(batch_of([CLS, 5, 6, SEP], [CLS, 7, SEP]), 100, PAD)
    assert found.input_ids.tolist() == [
        [CLS, 5, 6, SEP, 5, 6, SEP],
        [CLS, 7, SEP, 7, SEP, PAD, PAD],
    ]
    assert found.attention_mask.tolist() == [[1] * 7, [1] * 5 + [0] * 2]


def test_a_long_text_is_cut_and_keeps_its_end() -> None:
    found = repeated(batch_of([CLS, 5, 6, 7, 8, SEP]), 8, PAD)
    assert rows_of(found) == [[CLS, 5, 6, SEP, 5, 6, SEP]]


@given(
    words=st.lists(
        st.lists(st.integers(FIRST_WORD, 99), min_size=1, max_size=12), min_size=1, max_size=5
    ),
    longest=st.integers(14, 40),
)
def test_no_text_is_longer_than_there_are_positions(words: list[list[int]], longest: int) -> None:
    sentences = [[CLS, *row, SEP] for row in words]
    for once, twice in zip(
        sentences, rows_of(repeated(batch_of(*sentences), longest, PAD)), strict=True
    ):
        half = (len(twice) + 1) // 2
        assert len(twice) <= longest
        assert twice[1:half] == twice[half:]
        assert twice[: half - 1] == once[: half - 1]
        assert (twice[0], twice[-1]) == (CLS, SEP)
        assert half == min(len(once), (longest + 1) // 2)

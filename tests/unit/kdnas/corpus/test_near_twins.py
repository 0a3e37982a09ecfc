"""Near twins: what counts as one, and who leaves the held-out split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.corpus import near_twins
from kdnas.corpus.near_twins import WithoutTwins, without_twins

A = list(range(100, 120))
B = list(range(200, 220))
C = list(range(300, 320))

Texts = Sequence[Sequence[int]]


def split(texts: Texts, held_out: Sequence[int], least: int = 0) -> WithoutTwins:
    tokens = np.concatenate([np.array(text, np.uint16) for text in texts])
    offsets = np.cumsum([0, *map(len, texts)])
    return without_twins(tokens, offsets, np.array(held_out), least)


def stays(texts: Texts, held_out: Sequence[int], least: int = 0) -> list[int]:
    return split(texts, held_out, least).held_out.tolist()


def share(of: Sequence[int], holder: Sequence[int]) -> float:
    """The definition, word for word."""
    own, other = ({tuple(t[i : i + 4]) for i in range(len(t) - 3)} for t in (of, holder))
    return len(own & other) / max(len(own), 1)


def reference(texts: Texts, held_out: Sequence[int]) -> list[int]:
    left = set(held_out)
    while True:
        training = [text for i, text in enumerate(texts) if i not in left]
        twins = {i for i in left if any(share(texts[i], other) >= 0.5 for other in training)}
        if not twins:
            return sorted(left)
        left -= twins


def test_a_changed_word_makes_a_twin_and_another_text_none() -> None:
    changed = [*A[:9], 7, *A[10:]]
    assert share(changed, A) == 13 / 17
    assert stays([A, B, changed], [2]) == []
    assert stays([A, B, C], [2]) == [2]


def test_a_quotation_is_a_twin_and_what_quotes_it_is_none() -> None:
    longer = [*B, *A, *C]
    assert stays([longer, A], [1]) == []
    assert stays([longer, A], [0]) == [0]


def test_half_of_the_runs_are_enough() -> None:
    text = A[:11]  # 8 runs
    assert stays([[*A[:7], *B], text], [1]) == []
    assert stays([[*A[:6], *B], text], [1]) == [1]


def test_two_halves_in_two_sequences_make_no_twin() -> None:
    assert stays([A[:8], A[5:13], A[10:], A], [3]) == [3]


def test_runs_do_not_cross_sequences() -> None:
    assert stays([A[:3], A[3:6], A[:6]], [2]) == [2]


def test_a_run_that_comes_back_counts_once() -> None:
    assert stays([[1] * 9, [*[1] * 30, *A]], [1]) == [1]
    assert stays([[*[1] * 30, *B], [*A[:6], *[1] * 4]], [1]) == [1]


def test_what_is_shorter_than_a_run_has_no_twin() -> None:
    assert stays([[1, 2, 3, 4], [1, 2, 3], A], [1]) == [1]
    assert stays([[1, 2], [3]], [1]) == [1]


def test_twins_of_what_leaves_follow() -> None:
    chain = [A[i : i + 12] for i in (0, 4, 8)]  # each holds five of nine runs of its neighbours
    assert stays([chain[0], chain[1], chain[2], B], [1, 2, 3]) == [3]
    assert stays([B, chain[1], chain[2]], [1, 2]) == [1, 2]


def test_the_least_alike_stay_if_too_few_would() -> None:
    texts = [A, B, C[:12], A[:16], [*B[:10], 1, 2, 3, 4, 5, 6], [*C[:9], 7, 8, 9]]
    found = split(texts, [3, 4, 5], least=2)
    assert found.held_out.tolist() == [4, 5]
    assert (found.num_moved, found.num_kept) == (1, 2)
    assert split(texts, [3, 4, 5], least=9).num_kept == 3
    clean = split([*texts, range(400, 420)], [3, 6], least=1)
    assert (clean.held_out.tolist(), clean.num_moved, clean.num_kept) == ([6], 1, 0)


@pytest.mark.parametrize("limit", ["_CHUNK_TOKENS", "_CHUNK_COUNTS"])
def test_the_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 3, rng.integers(1, 30)) for _ in range(200)]
    whole = split(texts, range(0, 200, 5))
    assert 0 < len(whole.held_out) < 40
    monkeypatch.setattr(near_twins, limit, 45)
    assert split(texts, range(0, 200, 5)).held_out.tolist() == whole.held_out.tolist()


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=2, max_size=30),
    st.data(),
)
def test_as_by_the_definition(texts: list[list[int]], data: st.DataObject) -> None:
    held_out = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1)))
    assert stays(texts, held_out) == reference(texts, held_out)

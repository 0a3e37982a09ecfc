from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.corpus.proxy_set import proxy_set
from kdnas.corpus.strata import share_out
from kdnas.corpus.tokenized import TokenizedCorpus


def test_every_language_keeps_its_share(corpus: TokenizedCorpus) -> None:
    chosen = proxy_set(corpus, 0.3, seed=0)
    counts = np.bincount(corpus.languages[chosen])
    assert counts.tolist() == [round(0.3 * 54), round(0.3 * 180), 1]


@pytest.mark.parametrize("fraction", [1e-6, 0.1, 0.5, 1.0])
def test_sorted_distinct_and_never_held_out(corpus: TokenizedCorpus, fraction: float) -> None:
    chosen = proxy_set(corpus, fraction, seed=3)
    assert np.all(np.diff(chosen) > 0)
    assert np.isin(chosen, corpus.train_indices).all()
    assert set(corpus.languages[chosen]) == {0, 1, 2}


def test_everything_at_fraction_one(corpus: TokenizedCorpus) -> None:
    assert np.array_equal(proxy_set(corpus, 1.0, seed=0), corpus.train_indices)


def test_seeded_and_nested(corpus: TokenizedCorpus) -> None:
    small, large = (proxy_set(corpus, fraction, seed=5) for fraction in (0.2, 0.6))
    assert np.array_equal(small, proxy_set(corpus, 0.2, seed=5))
    assert not np.array_equal(small, proxy_set(corpus, 0.2, seed=6))
    assert np.isin(small, large).all()


def test_the_same_on_every_machine(corpus: TokenizedCorpus) -> None:
    chosen = proxy_set(corpus, 0.3, seed=0).astype("<i8")
    assert hashlib.sha256(chosen.tobytes()).hexdigest()[:16] == "b71d8883a74424fb"


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 100))
def test_sharing_out(sizes: list[int], total: int) -> None:
    total = min(total, sum(sizes))
    counts = share_out(np.array(sizes), total)
    assert np.all((counts >= 0) & (counts <= np.array(sizes) - 1))
    assert counts.sum() <= total
    quotas = np.array(sizes) * total / sum(sizes)
    spare = counts < np.array(sizes) - 1
    assert np.all(np.abs(counts - quotas)[spare] < 1 + 1e-9)

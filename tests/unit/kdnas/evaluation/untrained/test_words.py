"""What words in common alone come to."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.evaluation.scoring.tally import mean_of
from kdnas.evaluation.untrained.words import beside_words, ranked_by_words, words_in_common

WORDS = ["a", "stone", "Stone", "lies", "still,", "7", "ß"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def bm25(query: str, passages: list[str]) -> list[float]:
    """The formula, word by word."""
    bags = [Counter(words(passage)) for passage in passages]
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in words(query):
            having = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            damping = 1.2 * (0.25 + 0.75 * bag.total() / mean) if mean else 1.0
            score += idf * bag[word] / (bag[word] + damping)
        scores.append(score)
    return scores


@given(st.lists(SENTENCES, min_size=1, max_size=4), st.lists(SENTENCES, min_size=1, max_size=6))
def test_bm25_is_the_formula(queries: list[str], passages: list[str]) -> None:
    found = ranked_by_words(queries, passages, len(passages))
    for query, ranking in zip(queries, found, strict=True):
        assert sorted(ranking) == list(range(len(passages)))
        scores = np.array(bm25(query, passages))
        in_order = scores[ranking]
        assert (np.diff(in_order) <= 1e-9).all()


def test_equally_good_ones_stay_in_order_and_few_are_enough() -> None:
    assert ranked_by_words(["stone"], ["air", "a stone", "a stone", "sea"], 3) == [[1, 2, 0]]
    assert ranked_by_words(["stone", "?"], ["!", "…"], 5) == [[0, 1], [0, 1]]


def test_the_cosine_of_words() -> None:
    found = words_in_common(
        [("a stone lies", "Lies a STONE"), ("one", "two"), ("", "one"), ("a b", "a c")]
    )
    assert found[:3] == pytest.approx([1.0, 0.0, 0.0])
    assert 0 < found[3] < 1
    assert words_in_common([("", "!"), ("?", "…")]) == [0.0, 0.0]


def test_what_a_reader_is_told() -> None:
    model, other = mean_of([1.0, 1.0, 0.5, 1.0] * 50), mean_of([0.5, 0.25, 0.5, 0.25] * 50)
    said = beside_words("BM25", "ndcg_at_10", [(model, other)])
    assert said.startswith(
        "words in common alone (BM25): nDCG@10 37.5; the model's less that: +50.0 (+4"
    )
    assert said.endswith("95 % over the examples)")

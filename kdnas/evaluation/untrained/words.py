"""What words in common alone come to: the least that sentence embeddings must beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kdnas.evaluation.scoring.significance import Pair, paired_bootstrap
from kdnas.evaluation.tasks.task import METRIC_NAMES

_WORD: Final = r"(?u)\w+"
_K1, _B = 1.2, 0.75
"""Of BM25, as Lucene has them."""
_SCORES: Final = 1 << 24
"""That are sorted at once."""


def words_in_common(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Cosine of the TF-IDF vectors of both texts of each of N pairs; 0 where one has no word.

    Words are runs of letters and digits in lower case, their frequencies those of all texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text for pair in pairs for text in pair]
    if not any(map(_has_word, texts)):
        return [0.0] * len(pairs)
    vectors = TfidfVectorizer(token_pattern=_WORD).fit_transform(texts)
    return np.asarray(vectors[::2].multiply(vectors[1::2]).sum(1)).ravel().tolist()


def ranked_by_words(queries: Sequence[str], passages: Sequence[str], count: int) -> list[list[int]]:
    """Rank P passages for each of Q queries by BM25 (Robertson and Zaragoza 2009, §3.4.1).

    ``Σ_w idf(w) · tf / (tf + k1 · (1 − b + b · length / mean length))`` over the words of the query
    with ``idf(w) = ln(1 + (P − n_w + 0.5) / (n_w + 0.5))``; k1 = 1.2, b = 0.75.

    Args:
        queries: texts.
        passages: texts.
        count: how many are wanted.

    Returns:
        Of each query places of passages, the best first, of equally good ones the first; ``count``
        of them, or as many as there are.
    """
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

    if not any(map(_has_word, passages)):
        return [list(range(min(count, len(passages))))] * len(queries)
    counter = CountVectorizer(token_pattern=_WORD, dtype=np.float64)
    counts = csr_array(counter.fit_transform(passages))
    lengths = counts.sum(1)
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((len(passages) - having + 0.5) / (having + 0.5))
    of_row = np.repeat(lengths, np.diff(counts.indptr))
    damping = _K1 * (1 - _B + _B * of_row / lengths.mean())
    counts.data *= idf[counts.indices] / (counts.data + damping)
    asked = csr_array(counter.transform(queries))
    found: list[list[int]] = []
    some_at_once = max(1, _SCORES // len(passages))
    for start in range(0, len(queries), some_at_once):
        scores = (asked[start : start + some_at_once] @ counts.T).toarray()
        found += np.argsort(-scores, axis=1, kind="stable")[:, :count].tolist()
    return found


def beside_words(how: str, metric: str, sets: Sequence[Pair]) -> str:
    """Say how a model's score lies to that of words alone, on the same examples.

    Args:
        how: the words were compared.
        metric: the task's main one.
        sets: model and words on each evaluation set.
    """
    found = paired_bootstrap(sets, metric=metric)
    words = np.mean([other.value for _, other in sets])
    return (
        f"words in common alone ({how}): {METRIC_NAMES[metric]} {100 * words:.1f}; the model's "
        f"less that: {100 * found.difference:+.1f} ({100 * found.low:+.1f} to "
        f"{100 * found.high:+.1f}, 95 % over the examples)"
    )


def _has_word(text: str) -> bool:
    return any(character.isalnum() or character == "_" for character in text)

"""A page of results names its text, and no folder of a machine."""

import sys
from pathlib import Path

import pytest

from kdnas.testing.tiny_lab import make_tiny_lab

PROGRAMS = Path(__file__).parents[3] / "benchmarks"


def test_facts_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.delitem(sys.modules, "named_corpus", raising=False)
    from named_corpus import corpus_facts, corpus_words, source_name

    corpus = make_tiny_lab(tmp_path).corpus
    facts = corpus_facts(corpus)
    assert facts == {
        "corpus_source": ["texts.txt"],
        "corpus_fingerprint": corpus.fingerprint,
        "corpus_sequences": 300,
        "corpus_held_out": 30,
    }
    assert corpus_words(facts) == (
        f"`texts.txt` (300 sequences, 30 of them held out, corpus `{corpus.fingerprint}`)"
    )
    assert [source_name(name) for name in ("pydocs", "hub:owner/name")] == [
        "pydocs",
        "hub:owner/name",
    ]

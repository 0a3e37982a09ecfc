"""A page of results names its text, and no folder of a machine."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from kdnas.testing.tiny_lab import make_tiny_lab


def test_facts_and_words(tmp_path: Path, load: Callable[[str], ModuleType]) -> None:
    named = load("named_corpus")
    corpus = make_tiny_lab(tmp_path).corpus
    facts = named.corpus_facts(corpus)
    assert facts == {
        "corpus_source": ["texts.txt"],
        "corpus_fingerprint": corpus.fingerprint,
        "corpus_sequences": 300,
        "corpus_held_out": 30,
    }
    assert named.corpus_words(facts) == (
        f"`texts.txt` (300 sequences, 30 of them held out, corpus `{corpus.fingerprint}`)"
    )
    assert [named.source_name(name) for name in ("pydocs", "hub:owner/name")] == [
        "pydocs",
        "hub:owner/name",
    ]

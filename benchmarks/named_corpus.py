"""Names the text behind a page of results: ``pydocs`` is another one on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdnas.corpus.sources import HUB_PREFIX
from kdnas.corpus.tokenized import TokenizedCorpus


def corpus_facts(corpus: TokenizedCorpus) -> dict[str, Any]:
    """Return source, fingerprint and number of sequences, for a result's numbers."""
    sources = corpus.meta["spec"]["source"]
    return {
        "corpus_source": [source_name(source) for source in sources],
        "corpus_fingerprint": corpus.fingerprint,
        "corpus_sequences": corpus.num_sequences,
        "corpus_held_out": len(corpus.held_out_indices),
    }


def corpus_words(facts: dict[str, Any]) -> str:
    """Say the same in words, for a result's page."""
    return (
        f"{', '.join(f'`{name}`' for name in facts['corpus_source'])} "
        f"({facts['corpus_sequences']} sequences, {facts['corpus_held_out']} of them held out, "
        f"corpus `{facts['corpus_fingerprint']}`)"
    )


def source_name(source: str) -> str:
    """Return a source without the folders of this machine."""
    return source if source.startswith(HUB_PREFIX) else Path(source).name

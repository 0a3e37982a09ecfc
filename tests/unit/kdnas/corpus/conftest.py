from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store
from kdnas.testing.tiny_tokenizer import make_tiny_tokenizer

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
SIZES = {"de": 60, "en": 200, "sw": 1}

Build = Callable[..., TokenizedCorpus]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"), tmp_path / "cache")


@pytest.fixture
def build(tokenizer_folder: Path, store: Store) -> Build:
    def make(*source: str | Path, progress: Any = None, **fields: Any) -> TokenizedCorpus:
        spec = CorpusSpec.read({"source": [str(s) for s in source], **fields}, "corpus")
        return build_corpus(spec, tokenizer_folder, store, progress)

    return make


@pytest.fixture(scope="session")
def corpus(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizedCorpus:
    """261 distinct sequences of 5 to 42 tokens in three languages."""
    rng, folder = random.Random(0), tmp_path_factory.mktemp("corpus")
    (folder / "texts").mkdir()
    for language, size in SIZES.items():
        lines = [
            " ".join([language, *rng.choices(WORDS, k=rng.randint(3, 38)), str(i)])
            for i in range(size)
        ]
        (folder / "texts" / f"{language}.txt").write_text("\n".join(lines))
    spec = CorpusSpec.read(
        {"source": str(folder / "texts"), "language_per_file": True, "held_out_fraction": 0.1},
        "corpus",
    )
    return build_corpus(spec, tokenizer_folder, Store(str(folder / "store"), folder / "cache"))

"""Building and reading a tokenised corpus."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from kdnas.artefact import DRAFT_PREFIX
from kdnas.corpus import tokenized
from kdnas.corpus.tokenized import CorpusProgress, TokenizedCorpus, build_corpus
from kdnas.corpus.tokenizing import CorpusTokenizer
from kdnas.errors import CorpusError, StoreError
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store
from kdnas.testing.tiny_tokenizer import make_tiny_tokenizer

LETTERS = [a + b for a in "abcdefgh" for b in "klmnopqr"]
LINES = [f"alpha beta gamma {i}" for i in range(40)]


def lines(path: Path, values: list[str]) -> Path:
    path.write_text("\n".join(values))
    return path


def all_tokens(corpus: TokenizedCorpus) -> list[list[int]]:
    return [corpus.tokens(i).tolist() for i in range(corpus.num_sequences)]


def test_tokens_are_the_tokenizers(tmp_path: Path, build: Any, tokenizer_folder: Path) -> None:
    corpus = build(lines(tmp_path / "a.txt", LINES))
    reference = AutoTokenizer.from_pretrained(tokenizer_folder)
    assert all_tokens(corpus) == [reference(line)["input_ids"] for line in LINES]
    assert corpus.lengths.tolist() == [len(ids) for ids in all_tokens(corpus)]
    assert corpus.num_tokens == corpus.lengths.sum() == corpus.meta["num_tokens"]
    assert corpus.tokens(0).dtype == np.uint16
    assert corpus.pad_id == reference.pad_token_id == 0
    assert corpus.meta["special_ids"]["mask"] == reference.mask_token_id
    assert corpus.meta["vocab_size"] == len(reference)


def test_order_is_kept_over_many_chunks(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build(lines(tmp_path / "a.txt", LINES))
    monkeypatch.setattr("kdnas.corpus.writing.CHUNK_SAMPLES", 3)
    chunked = build(lines(tmp_path / "b.txt", LINES))
    assert all_tokens(chunked) == all_tokens(whole)


def test_long_samples_are_cut_with_their_last_special_token(tmp_path: Path, build: Any) -> None:
    texts = ["alpha " * 30, "beta gamma delta", "z" * 90 + " beta" * 4000]
    corpus = build(lines(tmp_path / "a.txt", texts), max_length=8)
    assert corpus.lengths.tolist() == [8, 5, 8]
    assert {corpus.tokens(i)[-1] for i in range(3)} == {corpus.meta["special_ids"]["sep"]}
    assert corpus.meta["num_cut"] == 2


def test_duplicates_and_short_samples_are_dropped_and_counted(tmp_path: Path, build: Any) -> None:
    texts = [
        "alpha beta gamma",
        "alpha  beta\tgamma",  # the same text
        "Alpha BETA gamma",  # the same tokens
        "alpha beta",
        "",
        "delta beta gamma",
    ]
    meta = build(lines(tmp_path / "a.jsonl", [json.dumps(t) for t in texts])).meta
    assert (meta["num_sequences"], meta["num_duplicates"], meta["num_short"]) == (2, 2, 1)


def test_fingerprint_is_of_the_content(tmp_path: Path, build: Any) -> None:
    (tmp_path / "elsewhere").mkdir()
    first = build(lines(tmp_path / "a.txt", LINES))
    moved = build(lines(tmp_path / "elsewhere" / "b.txt", [*LINES, LINES[0], "x"]))
    assert moved.fingerprint == first.fingerprint
    others = [
        build(tmp_path / "a.txt", max_length=9),
        build(tmp_path / "a.txt", seed=1),
        build(tmp_path / "a.txt", held_out_fraction=0.2),
        build(tmp_path / "a.txt", language_per_file=True),
        build(tmp_path / "a.txt", max_samples=39),
        build(lines(tmp_path / "c.txt", LINES[::-1])),
    ]
    assert len({corpus.fingerprint for corpus in (first, *others)}) == 7


def test_fingerprint_is_of_the_tokenizer(tmp_path: Path, build: Any, store: Store) -> None:
    source = lines(tmp_path / "a.txt", LINES)
    other = make_tiny_tokenizer(tmp_path / "other", ["gamma", "alpha", "beta"])
    spec = CorpusSpec.read(str(source), "corpus")
    assert build_corpus(spec, other, store).fingerprint != build(source).fingerprint


def test_second_run_does_not_tokenise_and_says_so(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lines(tmp_path / "a.txt", LINES)
    seen: list[CorpusProgress] = []
    first = build(source, progress=seen.append)
    assert [p.stage for p in seen] == ["tokenizing", "finished"]
    assert seen[-1].bytes_read == seen[-1].bytes_total == source.stat().st_size
    with monkeypatch.context() as patch:
        patch.delattr(tokenized.CorpusTokenizer, "load")
        again = build(source, progress=seen.append)
    assert again.fingerprint == first.fingerprint
    assert (seen[-1].stage, seen[-1].num_samples) == ("reused", 40)
    os.utime(source, (1, 1))
    assert build(source, progress=seen.append).fingerprint == first.fingerprint
    assert seen[-1].stage == "finished"


def test_held_out_split(corpus: TokenizedCorpus) -> None:
    held_out, train = corpus.held_out_indices, corpus.train_indices
    assert len(held_out) == 26
    assert not np.intersect1d(held_out, train).size
    assert sorted([*held_out, *train]) == list(range(261))
    assert corpus.language_names == ["de", "en", "sw"]
    # 10 % of 60, 200 and 1; a language's only sample is not spared.
    assert np.bincount(corpus.languages[held_out], minlength=3).tolist() == [6, 20, 0]
    assert corpus.meta["languages"] == {"de": 60, "en": 200, "sw": 1}


def test_held_out_cap_and_least(tmp_path: Path, build: Any) -> None:
    capped = build(lines(tmp_path / "a.txt", LINES), held_out_fraction=1.0, max_held_out=8)
    assert len(capped.held_out_indices) == 8
    whole = build(lines(tmp_path / "b.txt", LINES[:20]), held_out_fraction=1.0)
    assert len(whole.train_indices) == 1
    least = build(tmp_path / "a.txt", held_out_fraction=0.001)
    assert len(least.held_out_indices) == 1


def prose(count: int) -> list[str]:
    """Sentences of made-up words that have hardly a run in common."""
    rng = random.Random(1)
    return [" ".join(rng.choices(LETTERS, k=30)) for _ in range(count)]


def test_near_twins_of_training_are_not_held_out(tmp_path: Path, build: Any) -> None:
    texts = prose(600)
    # Every third text of the corpus comes back with a word changed, or inside a longer one.
    copies = [
        f"{text[:20]}{text[22:]}" if i % 2 else f"alpha {text} beta {texts[-1 - i]}"
        for i, text in enumerate(texts[:400:2])
    ]
    corpus = build(lines(tmp_path / "a.txt", texts + copies), held_out_fraction=0.25)
    meta = corpus.meta
    assert meta["num_held_out"] == len(corpus.held_out_indices)
    assert meta["num_held_out"] + meta["num_near_twins"] == 200
    assert meta["num_near_twins"] > 60
    assert meta["num_near_twins_held_out"] == 0
    assert meta["warnings"] == []

    def runs(index: int) -> set[tuple[int, ...]]:
        ids = corpus.tokens(index).tolist()
        return set(zip(ids, ids[1:], ids[2:], ids[3:], strict=False))

    training = [runs(index) for index in corpus.train_indices]
    for index in corpus.held_out_indices:
        own = runs(index)
        assert max(len(own & other) for other in training) < len(own) / 2
    again = build(lines(tmp_path / "b.txt", texts + copies), held_out_fraction=0.25)
    assert again.fingerprint == corpus.fingerprint


def test_a_text_that_repeats_itself_keeps_the_least_and_says_so(tmp_path: Path, build: Any) -> None:
    texts = [f"alpha beta gamma delta epsilon zeta eta theta iota {i}" for i in range(400)]
    corpus = build(lines(tmp_path / "a.txt", texts), held_out_fraction=0.25)
    assert len(corpus.held_out_indices) == corpus.meta["num_held_out"] == 32
    assert corpus.meta["num_near_twins"] == 68
    assert corpus.meta["num_near_twins_held_out"] == 32
    (warning,) = corpus.meta["warnings"]
    assert warning.startswith("32 of the 32 held-out samples are near twins of training samples")


def test_languages_of_one_sample_each_leave_one_held_out(tmp_path: Path, build: Any) -> None:
    rows = [json.dumps({"text": line, "l": str(i)}) for i, line in enumerate(LINES)]
    corpus = build(lines(tmp_path / "a.jsonl", rows), language_column="l")
    assert len(corpus.held_out_indices) == 1


def test_max_samples(tmp_path: Path, build: Any) -> None:
    corpus = build(lines(tmp_path / "a.txt", LINES), max_samples=10)
    assert all_tokens(corpus) == all_tokens(build(tmp_path / "a.txt"))[:10]


def test_large_vocabulary_takes_uint32(tmp_path: Path, store: Store) -> None:
    words = [f"w{i}" for i in range(1 << 16)]
    tokenizer = make_tiny_tokenizer(tmp_path / "large", words)
    last = f"w{(1 << 16) - 1}"
    source = lines(tmp_path / "a.txt", [f"{last} {last} {i}" for i in range(3)])
    spec = CorpusSpec.read(str(source), "corpus")
    corpus = build_corpus(spec, tokenizer, store)
    assert corpus.tokens(0).dtype == np.uint32
    assert corpus.tokens(0)[1] == corpus.meta["vocab_size"] - 1 > 1 << 16


def test_empty_corpus_names_what_was_looked_for(tmp_path: Path, build: Any) -> None:
    source = lines(tmp_path / "a.txt", ["", "x"])
    with pytest.raises(CorpusError, match=r"no text found in .*a\.txt: 1 files read.* 1 samples"):
        build(source)
    with pytest.raises(CorpusError, match="only one usable sample"):
        build(lines(source, LINES[:1]))


def test_length_beyond_the_teachers(tmp_path: Path, tokenizer_folder: Path, store: Store) -> None:
    spec = CorpusSpec.read({"source": "pydocs", "max_length": 600}, "corpus")
    with pytest.raises(CorpusError, match="max_length 600 is more than the 512 tokens"):
        build_corpus(spec, tokenizer_folder, store, max_positions=512)


def test_missing_and_slow_tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorpusError, match=r"the tokenizer in .* does not load"):
        CorpusTokenizer.load(tmp_path, 16)

    class Slow:
        is_fast = False

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: Slow())
    with pytest.raises(CorpusError, match="is a slow one"):
        CorpusTokenizer.load(tmp_path, 16)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: [],
        lambda whole: {**whole, "model": {"type": "Other"}},
        lambda whole: {**whole, "model": {**whole["model"], "vocab": {}}},
    ],
)
def test_damaged_tokenizers_are_refused(
    tmp_path: Path, tokenizer_folder: Path, damage: Callable[[dict[str, Any]], Any]
) -> None:
    shutil.copytree(tokenizer_folder, tmp_path / "damaged")
    file = tmp_path / "damaged" / "tokenizer.json"
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    with pytest.raises(CorpusError, match=r"the tokenizer in .*damaged does not load \("):
        CorpusTokenizer.load(tmp_path / "damaged", 16)
    file.write_text('{"a":' * 100_000)
    with pytest.raises(CorpusError, match=r"the tokenizer in .*damaged does not load \("):
        CorpusTokenizer.load(tmp_path / "damaged", 16)


def test_tokens_without_an_embedding_are_refused(
    tmp_path: Path, tokenizer_folder: Path, store: Store
) -> None:
    folder = tmp_path / "foreign"
    shutil.copytree(tokenizer_folder, folder)
    source = lines(tmp_path / "a.txt", LINES)
    spec = CorpusSpec.read({"source": str(source), "max_length": 16}, "corpus")
    rows = CorpusTokenizer.load(folder, 16).num_ids
    (folder / "config.json").write_text(json.dumps({"vocab_size": rows}))
    assert build_corpus(spec, folder, store, max_positions=512)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 6}))
    said = r"gives the id \d+, and the model has embeddings of 6 tokens; copy both from one place"
    with pytest.raises(CorpusError, match=said):
        build_corpus(spec, folder, store, max_positions=512)


def test_saved_cut_and_padding_of_a_tokenizer_are_not_used(
    tmp_path: Path, tokenizer_folder: Path
) -> None:
    folder = tmp_path / "padded"
    shutil.copytree(tokenizer_folder, folder)
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["truncation"] = {
        "direction": "Right",
        "max_length": 5,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    saved["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    plain, padded = (CorpusTokenizer.load(f, 64) for f in (tokenizer_folder, folder))
    texts = ["alpha", "alpha beta gamma delta eta"]
    assert padded.encode(texts) == plain.encode(texts)
    assert padded.fingerprint == plain.fingerprint


def test_environment_is_left_as_it_was(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, value in enumerate((None, "true")):
        if value is None:
            monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        else:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        build(lines(tmp_path / f"{i}.txt", LINES), max_samples=5)
        assert os.environ.get("TOKENIZERS_PARALLELISM") == value


def test_corpus_in_a_remote_store(tmp_path: Path, tokenizer_folder: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    spec = CorpusSpec.read(str(lines(tmp_path / "a.txt", LINES)), "corpus")
    built = build_corpus(spec, tokenizer_folder, Store(url, tmp_path / "cache"))
    fetched = Store(url, tmp_path / "node").fetch("corpus", built.fingerprint)
    assert all_tokens(TokenizedCorpus.open(fetched)) == all_tokens(built)


def test_full_disk_leaves_nothing(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = lines(tmp_path / "a.txt", LINES)
    with monkeypatch.context() as patch:
        patch.setattr("kdnas.corpus.writing.save_array", full)
        with pytest.raises(StoreError, match="No space left on device; free some space"):
            build(source)
    assert not list(tmp_path.rglob(f"{DRAFT_PREFIX}*"))
    assert build(source).num_sequences == 40


def test_folders_that_hold_no_corpus(tmp_path: Path, corpus: TokenizedCorpus) -> None:
    with pytest.raises(StoreError, match="does not hold a tokenised corpus"):
        TokenizedCorpus.open(tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(corpus.folder, folder)
    with (folder / "tokens.bin").open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(StoreError, match=r"tokens\.bin holds \d+ tokens instead of"):
        TokenizedCorpus.open(folder)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "format_version": 9}))
    with pytest.raises(StoreError, match="has format 9, this program reads 2"):
        TokenizedCorpus.open(folder)

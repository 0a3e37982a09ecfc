"""A tokenised corpus: built once, kept in the store, read memory-mapped.

The artefact holds ``tokens.bin`` (uint16, or uint32 for a vocabulary above 65536; all sequences
one after the other), ``offsets.npy`` (int64, N + 1), ``languages.npy`` (uint16 codes),
``held_out.npy`` (int64, sorted) and ``meta.json``.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kdnas.corpus.reading import ReadingReport
from kdnas.corpus.sources import find_sources, iterate_samples
from kdnas.corpus.strata import Indices
from kdnas.corpus.tokenizing import CorpusTokenizer, tokenizer_files_state
from kdnas.corpus.writing import (
    FORMAT_VERSION,
    HELD_OUT,
    LANGUAGES,
    META,
    OFFSETS,
    TOKENS,
    Chunk,
    CorpusWriter,
    description,
    distinct_chunks,
)
from kdnas.errors import CorpusError, StoreError
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import fingerprint
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store

KIND = "corpus"


@dataclass(frozen=True, slots=True)
class CorpusProgress:
    """How far building a corpus is.

    Attributes:
        stage: ``tokenizing``; then ``finished``, or ``reused`` if the corpus was there already.
        num_samples: samples kept so far.
        num_tokens: tokens kept so far.
        bytes_read: how much of the sources was read.
        bytes_total: size of the sources, or None if nobody can know it.
        seconds: since the beginning.
    """

    stage: Literal["tokenizing", "finished", "reused"]
    num_samples: int
    num_tokens: int
    bytes_read: int
    bytes_total: int | None
    seconds: float


class TokenizedCorpus:
    """Sequences of token ids, special tokens included, without padding.

    Never send one to another process: send the folder, or the fingerprint.

    Attributes:
        folder: where the files lie.
        meta: counts, tokenizer, special ids and the spec that the corpus was built from.
        fingerprint: of tokens, languages, held-out split, tokenizer and ``max_length``.
        seed: the fingerprint as a number, for draws that belong to the text and not to a training.
        lengths: (N,) int64, tokens of each sequence.
        languages: (N,) uint16 codes into ``language_names``.
        language_names: names, sorted; ``und`` where the language is not known.
        held_out_indices: sequences that are never trained on, sorted.
        train_indices: all others, sorted.
        pad_id: id to pad with; 0 for a tokenizer without padding token (it is masked anyway).
    """

    def __init__(self, folder: Path) -> None:
        try:
            meta: dict[str, Any] = json.loads((folder / META).read_bytes())
            if meta["format_version"] != FORMAT_VERSION:
                raise StoreError(
                    f"the corpus in {folder} has format {meta['format_version']}, this program "
                    f"reads {FORMAT_VERSION}; build the corpus again"
                )
            self._offsets: NDArray[np.int64] = np.load(folder / OFFSETS)
            dtype = np.dtype(meta["dtype"]).newbyteorder("<")
            self._tokens = np.asarray(np.memmap(folder / TOKENS, dtype, mode="r"))
            self.languages: NDArray[np.uint16] = np.load(folder / LANGUAGES)
            self.held_out_indices: Indices = np.load(folder / HELD_OUT)
            self.fingerprint: str = meta["fingerprint"]
            self.seed = int(self.fingerprint, 16)
            self.language_names: list[str] = list(meta["languages"])
            self.pad_id: int = meta["special_ids"]["pad"] or 0
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise StoreError(
                f"{folder} does not hold a tokenised corpus: {error}; build the corpus again"
            ) from None
        if len(self._tokens) != self._offsets[-1]:
            raise StoreError(
                f"{folder / TOKENS} holds {len(self._tokens)} tokens instead of "
                f"{self._offsets[-1]}; remove {folder} and build the corpus again"
            )
        self.folder, self.meta = folder, meta
        self.lengths: NDArray[np.int64] = np.diff(self._offsets)
        self.train_indices: Indices = np.setdiff1d(
            np.arange(len(self.lengths)), self.held_out_indices, assume_unique=True
        )

    @classmethod
    def open(cls, folder: Path) -> TokenizedCorpus:
        """Map a corpus into memory.

        Raises:
            StoreError: the folder holds none, a damaged one, or one of another format.
        """
        return cls(folder)

    @property
    def num_sequences(self) -> int:
        """All sequences, held-out ones included."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences, special tokens included."""
        return int(self._offsets[-1])

    def tokens(self, index: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of a sequence: a read-only view into the mapped file."""
        ids: NDArray[np.unsignedinteger[Any]] = self._tokens[
            self._offsets[index] : self._offsets[index + 1]
        ]
        return ids


def build_corpus(
    spec: CorpusSpec,
    tokenizer_folder: Path,
    store: Store,
    progress: Callable[[CorpusProgress], None] | None = None,
    *,
    max_positions: int | None = None,
    reach: Reach = ANYWHERE,
) -> TokenizedCorpus:
    """Tokenise what a spec names and put it into the store, or take it up if it is there.

    Whether it is there is decided by paths, sizes and times of the files (of ``pydocs``: by the
    installed distributions), the spec and the tokenizer's files, without reading any text.

    Args:
        spec: the text, and how to cut and split it.
        tokenizer_folder: folder of the teacher with its fast tokenizer.
        store: where the artefact goes.
        progress: called after every chunk of samples, and once at the end.
        max_positions: longest sequence that the teacher takes, if known.
        reach: how the files of the text are opened.

    Raises:
        RequestError: a file is out of reach.
        CorpusError: the text cannot be read or is too little, the tokenizer does not load, or
            ``max_length`` is beyond the teacher's positions.
        StoreError: the artefact cannot be written.
    """
    if max_positions is not None and spec.max_length > max_positions:
        raise CorpusError(
            f"max_length {spec.max_length} is more than the {max_positions} tokens that the "
            f"teacher takes; set corpus.max_length to {max_positions} or less"
        )
    start = time.monotonic()
    sources = find_sources(spec, reach)
    key = fingerprint(
        {
            "format_version": FORMAT_VERSION,
            "spec": description(spec),
            "sources": [source.state() for source in sources],
            "tokenizer": tokenizer_files_state(tokenizer_folder),
        }
    )
    report = ReadingReport(reach=reach)

    def tell(stage: Literal["tokenizing", "finished", "reused"], samples: int, tokens: int) -> None:
        if progress is not None:
            seconds = time.monotonic() - start
            progress(
                CorpusProgress(
                    stage, samples, tokens, report.bytes_read, report.bytes_total, seconds
                )
            )

    if known := store.recall(KIND, key):
        corpus = TokenizedCorpus.open(store.fetch(KIND, known))
        tell("reused", corpus.num_sequences, corpus.num_tokens)
        return corpus
    tokenizer = CorpusTokenizer.load(tokenizer_folder, spec.max_length)
    with store.create(KIND) as draft, CorpusWriter(draft.folder, tokenizer, spec) as writer:
        waiting: deque[Chunk] = deque()

        def texts() -> Iterator[list[str]]:
            for chunk in distinct_chunks(iterate_samples(spec, sources, report)):
                waiting.append(chunk)
                yield chunk.texts

        for encoded in tokenizer.encode_chunks(texts()):
            writer.add(waiting.popleft(), encoded)
            tell("tokenizing", writer.num_samples, writer.num_tokens)
            if writer.full:
                break
        meta = writer.finish(report)
        name = draft.publish(meta["fingerprint"], _summary(meta))
    store.remember(KIND, key, name)
    tell("finished", meta["num_sequences"], meta["num_tokens"])
    return TokenizedCorpus.open(store.fetch(KIND, name))


def _summary(meta: dict[str, Any]) -> dict[str, Any]:
    return {key: meta[key] for key in ("num_sequences", "num_tokens", "max_length", "spec")}

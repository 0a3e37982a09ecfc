"""Writes the files of a tokenised corpus: drops duplicates, keeps counts, holds samples out."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kdnas.artefact import save_array
from kdnas.corpus.near_twins import without_twins
from kdnas.corpus.reading import ReadingReport, Sample
from kdnas.corpus.strata import Indices, share_out, stratified_choice
from kdnas.corpus.tokenizing import CorpusTokenizer, Encoded
from kdnas.errors import CorpusError
from kdnas.records import fingerprint
from kdnas.specs.parts import CorpusSpec

FORMAT_VERSION = 2
TOKENS, OFFSETS, LANGUAGES = "tokens.bin", "offsets.npy", "languages.npy"
HELD_OUT, META = "held_out.npy", "meta.json"

CHUNK_SAMPLES, CHUNK_CHARACTERS = 1024, 1 << 24
"""At most of a chunk, but for one sample of any length."""
MIN_REAL_TOKENS = 3
LEAST_HELD_OUT = 32
"""Held-out samples that stay even where they have near twins: fewer would tell nothing."""

_HELD_OUT_SEED = 1  # tells this choice from other choices of the same seed


@dataclass(slots=True)
class Chunk:
    """Some samples that are to be tokenised together, and the duplicates met on the way."""

    texts: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    duplicates: int = 0


def distinct_chunks(samples: Iterable[Sample]) -> Iterator[Chunk]:
    """Cut samples into chunks, each text once."""
    seen: set[int] = set()
    chunk, length = Chunk(), 0
    for text, language in samples:
        if not _is_new(text.encode(), seen):
            chunk.duplicates += 1
            continue
        chunk.texts.append(text)
        chunk.languages.append(language)
        length += len(text)
        if len(chunk.texts) == CHUNK_SAMPLES or length >= CHUNK_CHARACTERS:
            yield chunk
            chunk, length = Chunk(), 0
    yield chunk


def description(spec: CorpusSpec) -> dict[str, Any]:
    """What the corpus is to be made of, without the pin to one made before."""
    return spec.model_dump(mode="json", exclude={"fingerprint"})


class CorpusWriter:
    """Takes tokenised chunks and leaves the files of a corpus in ``folder``.

    A sample is dropped as a duplicate also if only its tokens are those of an earlier one (case,
    or a difference behind the cut), so that nothing held out was trained on.
    """

    def __init__(self, folder: Path, tokenizer: CorpusTokenizer, spec: CorpusSpec) -> None:
        self._folder, self._tokenizer, self._spec = folder, tokenizer, spec
        self._dtype = np.dtype("<u2" if tokenizer.num_ids <= 1 << 16 else "<u4")
        self._file = (folder / TOKENS).open("wb")
        self._sha = hashlib.sha256()
        self._seen: set[int] = set()
        self._lengths = array("q")
        self._languages: list[str] = []
        self._duplicates = self._cut = self._short = 0
        self.num_tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def num_samples(self) -> int:
        """Samples kept so far."""
        return len(self._lengths)

    @property
    def full(self) -> bool:
        """True if the spec wants no more samples."""
        limit = self._spec.max_samples
        return limit is not None and self.num_samples >= limit

    def add(self, chunk: Chunk, encoded: Sequence[Encoded]) -> None:
        """Append the samples of a chunk, until the corpus is full."""
        self._duplicates += chunk.duplicates
        for language, (ids, cut) in zip(chunk.languages, encoded, strict=True):
            if self.full:
                return
            if len(ids) - self._tokenizer.num_special < MIN_REAL_TOKENS:
                self._short += 1
                continue
            self._refuse_without_embedding(max(ids))
            data = np.array(ids, self._dtype).tobytes()
            if not _is_new(data, self._seen):
                self._duplicates += 1
                continue
            self._file.write(data)
            self._sha.update(data)
            self._lengths.append(len(ids))
            self._languages.append(language)
            self._cut += cut
            self.num_tokens += len(ids)

    def _refuse_without_embedding(self, token: int) -> None:
        rows = self._tokenizer.rows
        if rows is not None and token >= rows:
            raise CorpusError(
                f"the tokenizer gives the id {token}, and the model has embeddings of {rows} "
                "tokens; copy both from one place again"
            )

    def finish(self, report: ReadingReport) -> dict[str, Any]:
        """Write everything but the tokens, and return the meta data.

        Samples that were drawn to be held out are trained on if training has near twins of them.

        Raises:
            CorpusError: fewer than two samples are left.
        """
        self._file.close()
        self._refuse_too_small(report)
        lengths = np.array(self._lengths, np.int64)
        names, codes = np.unique(np.array(self._languages), return_inverse=True)
        languages = codes.astype(np.uint16)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.memmap(self._folder / TOKENS, self._dtype, mode="r")
        split = without_twins(tokens, offsets, self._drawn(languages), LEAST_HELD_OUT)
        held_out = split.held_out
        if split.num_kept:
            report.warnings.append(
                f"{split.num_kept} of the {len(held_out)} held-out samples are near twins of "
                "training samples, so held-out losses will look too good; give more text, or text "
                "that repeats itself less"
            )
        save_array(self._folder / OFFSETS, offsets)
        save_array(self._folder / LANGUAGES, languages)
        save_array(self._folder / HELD_OUT, held_out)
        counts = Counter(self._languages)
        language_names = [str(name) for name in names]
        meta: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "fingerprint": self._fingerprint(lengths, languages, language_names, held_out),
            "num_sequences": self.num_samples,
            "num_tokens": self.num_tokens,
            "num_held_out": len(held_out),
            "num_near_twins": split.num_moved,
            "num_near_twins_held_out": split.num_kept,
            "num_duplicates": self._duplicates,
            "num_cut": self._cut,
            "num_short": self._short,
            "num_files": report.files,
            "num_empty_files": report.empty_files,
            "num_undecodable_bytes": report.undecodable_bytes,
            "warnings": report.warnings,
            "languages": {name: counts[name] for name in language_names},
            "tokenizer_fingerprint": self._tokenizer.fingerprint,
            "vocab_size": self._tokenizer.vocab_size,
            "max_length": self._spec.max_length,
            "dtype": self._dtype.name,
            "special_ids": self._tokenizer.special_ids,
            "all_special_ids": self._tokenizer.all_special_ids,
            "spec": description(self._spec),
        }
        text = json.dumps(meta, indent=1, ensure_ascii=False)
        (self._folder / META).write_bytes(text.encode())
        return meta

    def _refuse_too_small(self, report: ReadingReport) -> None:
        if self.num_samples >= 2:
            return
        found = "no text" if self.num_samples == 0 else "only one usable sample"
        raise CorpusError(
            f"{found} found in {', '.join(self._spec.source)}: {report.files} files read, "
            f"{report.empty_files} of them empty, {self._duplicates} duplicates and {self._short} "
            f"samples of fewer than {MIN_REAL_TOKENS} tokens dropped; give more text"
        )

    def _drawn(self, languages: NDArray[np.uint16]) -> Indices:
        wanted = round(self._spec.held_out_fraction * self.num_samples)
        total = min(max(wanted, 1), self._spec.max_held_out)
        indices = np.arange(self.num_samples)
        chosen = stratified_choice(
            indices, languages, lambda n: share_out(n, total), _HELD_OUT_SEED, self._spec.seed
        )
        # Where every language has a single sample, none can be spared, but one must be.
        return chosen if len(chosen) else indices[-1:]

    def _fingerprint(
        self,
        lengths: NDArray[np.int64],
        languages: NDArray[np.uint16],
        names: list[str],
        held_out: Indices,
    ) -> str:
        """Name the content; where it came from does not matter."""
        return fingerprint(
            {
                "format_version": FORMAT_VERSION,
                "tokens": self._sha.hexdigest(),
                "lengths": _digest(lengths.astype("<i8")),
                "languages": [names, _digest(languages.astype("<u2"))],
                "held_out": _digest(held_out.astype("<i8")),
                "tokenizer": self._tokenizer.fingerprint,
                "max_length": self._spec.max_length,
            }
        )


def _is_new(data: bytes, seen: set[int]) -> bool:
    """Remember 64 bits of a hash: two of ten million texts collide once in 400 000 corpora."""
    digest = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
    if digest in seen:
        return False
    seen.add(digest)
    return True


def _digest(values: NDArray[Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()

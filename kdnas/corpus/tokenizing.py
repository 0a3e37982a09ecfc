"""The teacher's fast tokenizer, set up to turn many texts into ids at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kdnas.errors import CorpusError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".h5", ".onnx", ".msgpack"})
# No token is longer than this on average, so characters beyond cannot matter.
_UNHEARD = "kdnas 7 \U0001f9ff"
"""A text with what no vocabulary has: a tokenizer has to know a token for that."""
_CHARS_PER_TOKEN = 100


class Encoded(NamedTuple):
    """Ids of one text, special tokens included, and whether it was cut."""

    ids: list[int]
    cut: bool


@dataclass(frozen=True, slots=True)
class CorpusTokenizer:
    """A fast tokenizer that adds special tokens and cuts at ``max_length``.

    Attributes:
        vocab_size: number of ids, added tokens included.
        num_special: special tokens that are added to every text.
        special_ids: role (pad, cls, sep, mask, unk, bos, eos) → id, or None where there is none.
        all_special_ids: every special id, sorted.
        fingerprint: of everything that decides the ids, without the cut.
        rows: embeddings that the model beside it has; None where there is none.
    """

    backend: Tokenizer
    max_length: int
    vocab_size: int
    num_special: int
    special_ids: dict[str, int | None]
    all_special_ids: list[int]
    fingerprint: str
    rows: int | None = None

    @classmethod
    def load(cls, folder: Path, max_length: int) -> CorpusTokenizer:
        """Load the tokenizer of a teacher's folder.

        Raises:
            CorpusError: there is none, it is damaged, or only a slow one.
        """
        from transformers import AutoTokenizer

        try:
            with _quiet():
                tokenizer = AutoTokenizer.from_pretrained(
                    folder, use_fast=True, trust_remote_code=False
                )
            if tokenizer.is_fast:
                tokenizer.backend_tokenizer.encode(_UNHEARD)
        except Exception as error:  # noqa: BLE001 - told below; the library raises plain ones too
            detail = " ".join(str(error).split())[:160]
            raise CorpusError(
                f"the tokenizer in {folder} does not load ({detail}); save it with "
                "tokenizer.save_pretrained"
            ) from None
        if not tokenizer.is_fast:
            raise CorpusError(
                f"the tokenizer in {folder} is a slow one; convert it to tokenizer.json first"
            )
        backend: Tokenizer = tokenizer.backend_tokenizer
        # A saved tokenizer may bring its own cut and padding.
        backend.no_padding()
        backend.no_truncation()
        fingerprint = hashlib.sha256(backend.to_str().encode()).hexdigest()[:16]
        backend.enable_truncation(max_length)
        roles = ("pad", "cls", "sep", "mask", "unk", "bos", "eos")
        return cls(
            backend=backend,
            max_length=max_length,
            vocab_size=backend.get_vocab_size(with_added_tokens=True),
            num_special=backend.num_special_tokens_to_add(False),
            special_ids={role: getattr(tokenizer, f"{role}_token_id") for role in roles},
            all_special_ids=sorted(tokenizer.all_special_ids),
            fingerprint=fingerprint,
            rows=_embedding_rows(folder),
        )

    @property
    def num_ids(self) -> int:
        """One more than the highest id that a text may have."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=0)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenise texts, in order."""
        limit = self.max_length * _CHARS_PER_TOKEN
        encodings = self.backend.encode_batch_fast([text[:limit] for text in texts])
        return [
            Encoded(encoding.ids, bool(encoding.overflowing) or len(text) > limit)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def encode_chunks(self, chunks: Iterable[Sequence[str]]) -> Iterator[list[Encoded]]:
        """Tokenise chunks of texts on all cores, in order, a few chunks ahead.

        Threads of ours instead of the tokenizer's own pool, which makes every process forked
        later (Ray's among them) complain and forbids it to tokenise in parallel.
        """
        cores = len(os.sched_getaffinity(0))
        with _own_pool_off(), ThreadPoolExecutor(cores) as pool:
            pending: deque[Future[list[Encoded]]] = deque()
            for chunk in chunks:
                pending.append(pool.submit(self.encode, chunk))
                if len(pending) > cores:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()


def _embedding_rows(folder: Path) -> int | None:
    """What the configuration in a folder says, if there is one."""
    try:
        rows = json.loads((folder / "config.json").read_text("utf-8")).get("vocab_size")
    except FileNotFoundError:
        return None
    return rows if isinstance(rows, int) else None


def tokenizer_files_state(folder: Path) -> dict[str, Any]:
    """Name → SHA-256 of the folder's files other than weights: changes when the tokenizer does."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix not in _WEIGHTS
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep advice of transformers (model type, regex, lengths) off the user's screen."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def _own_pool_off() -> Iterator[None]:
    before = os.environ.get(_PARALLELISM)
    os.environ[_PARALLELISM] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PARALLELISM]
        else:
            os.environ[_PARALLELISM] = before

"""What all readers of text share: samples, counts of what was odd, decoding and cleaning."""

from __future__ import annotations

import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

from kdnas.errors import CorpusError
from kdnas.reach import ANYWHERE, Reach

UNKNOWN_LANGUAGE = "und"  # BCP 47: undetermined
TEXT_SUFFIXES = frozenset({".txt", ".md"})
JSONL_SUFFIXES = frozenset({".jsonl", ".json"})
PARQUET_SUFFIXES = frozenset({".parquet"})

MOST_OF_A_TEXT = 1 << 24
"""Characters of a line, a paragraph or a cell: a long book has a tenth of them."""
MOST_BLANK = 1_000_000
"""Blank lines in a row: of a file that is damaged, or made to be read for hours."""
MOST_UNPACKED = 1 << 27
"""Bytes that a packed file may always unpack to."""
MOST_TIMES = 100
"""A packed file's size that it may unpack to beyond that; text unpacks to some 3 to 20 times."""

_HEAD_BYTES = 1 << 18
_BINARY_SHARE = 0.25
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROL = bytes(set(range(32)) - set(b"\t\n\x0b\x0c\r\x1b"))


class Sample(NamedTuple):
    """One text with normalised white space, and its language."""

    text: str
    language: str


@dataclass(slots=True)
class ReadingReport:
    """What was read so far, and what was odd about it.

    Attributes:
        bytes_total: size of all sources, or None where it cannot be known.
        bytes_read: how much of it was read.
        files: files read.
        empty_files: of these, how many held no text; the first is named in a warning.
        undecodable_bytes: bytes that were no UTF-8 and became U+FFFD.
        warnings: sentences for the user.
        reach: how files are opened.
    """

    bytes_total: int | None = None
    bytes_read: int = 0
    files: int = 0
    empty_files: int = 0
    undecodable_bytes: int = 0
    warnings: list[str] = field(default_factory=list)
    reach: Reach = ANYWHERE

    def clean(self, text: str) -> str:
        """Normalise white space; count and replace what was undecodable."""
        text = " ".join(text.split())
        if not text.isascii():
            text, replaced = _SURROGATES.subn("\ufffd", text)
            self.undecodable_bytes += replaced
        return text

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Count a file; on leaving, warn if bytes of it were undecodable."""
        bytes_before, bad_before = self.bytes_read, self.undecodable_bytes
        yield
        self.files += 1
        self.bytes_read = bytes_before + self.size(path)
        if bad := self.undecodable_bytes - bad_before:
            self.warnings.append(f"{path}: {bad} bytes are not UTF-8 and became U+FFFD")

    def size(self, path: Path) -> int:
        """Bytes of a file."""
        return self.reach.stat(path).st_size

    def found_empty(self, path: Path) -> None:
        """Count a file without text."""
        self.empty_files += 1
        if self.empty_files == 1:
            self.warnings.append(f"{path} holds no text (further empty files are only counted)")


def kind_of(path: Path) -> str:
    """Suffix that says how to read a file, lower case, without ``.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def open_bytes(path: Path, reach: Reach = ANYWHERE) -> Iterator[BufferedReader]:
    """Open a file for the time of a ``with`` block, gunzipping ``.gz``.

    Raises:
        RequestError: it is out of reach.
        CorpusError: it cannot be opened; or, as it is read, it unpacks to far more than text does.
    """
    try:
        raw = reach.open(path)
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; check the path") from None
    with raw:
        if path.suffix.lower() == ".gz":
            with gzip.open(raw, "rb") as unpacked:
                yield BufferedReader(_Bounded(unpacked, raw, path))
        else:
            yield raw


def unpacks_too_far(path: Path, size: int) -> CorpusError:
    """Return what to tell of a packed file that unpacks to more than ``MOST_TIMES`` its size.

    Args:
        path: of it.
        size: bytes that it has unpacked, or more.
    """
    return CorpusError(
        f"{path} unpacks to {size >> 20} MiB or more, over {MOST_TIMES} times its size, unlike "
        "text; check the file, or unpack it if that is meant"
    )


class _Bounded(RawIOBase):
    """What is unpacked of a file, up to a bound.

    Args:
        unpacked: the stream.
        packed: what it is read from.
        path: of the file, for messages.
    """

    def __init__(self, unpacked: gzip.GzipFile, packed: BufferedReader, path: Path) -> None:
        self._unpacked, self._packed, self._path = unpacked, packed, path

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; raises ``CorpusError`` beyond the bound."""
        count = self._unpacked.readinto(buffer)
        size = self._unpacked.tell()
        if size > max(MOST_UNPACKED, MOST_TIMES * self._packed.tell()):
            raise unpacks_too_far(self._path, size)
        return count


def text_lines(path: Path, reach: Reach = ANYWHERE) -> Iterator[str]:
    """Decoded lines, any line end, no end kept; undecodable bytes are left as surrogates.

    Raises:
        RequestError: the file is out of reach.
        CorpusError: it cannot be opened, a line is longer than ``MOST_OF_A_TEXT``, or more than
            ``MOST_BLANK`` lines in a row are blank; names it.
    """
    blank = 0
    with (
        open_bytes(path, reach) as raw,
        io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape") as text,
    ):
        for number in itertools.count(1):
            line = text.readline(MOST_OF_A_TEXT)
            if not line:
                return
            if len(line) == MOST_OF_A_TEXT and not line.endswith("\n"):
                raise too_long(f"{path}, line {number}")
            blank = blank + 1 if line == "\n" else 0
            if blank > MOST_BLANK:
                raise CorpusError(
                    f"{path}, line {number}: more than {MOST_BLANK} lines before it are blank; "
                    "take them out"
                )
            yield line.rstrip("\n")


def too_long(where: str) -> CorpusError:
    """Return what to tell of a text that is longer than ``MOST_OF_A_TEXT``.

    Args:
        where: it is.
    """
    return CorpusError(
        f"{where} has more than {MOST_OF_A_TEXT} characters without an end; end a line "
        "after each sentence or paragraph"
    )


def refuse_binary(path: Path, reach: Reach = ANYWHERE) -> None:
    """Look at the beginning of a file.

    Raises:
        CorpusError: a quarter of it or more is neither UTF-8 nor text at all.
    """
    with open_bytes(path, reach) as file:
        try:
            head = file.read(_HEAD_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"cannot read {path}: {error}; check the file") from None
    bad = len(_SURROGATES.findall(head.decode("utf-8", "surrogateescape")))
    bad += len(head) - len(head.translate(None, _CONTROL))
    if head and bad >= _BINARY_SHARE * len(head):
        raise CorpusError(
            f"{path} is not UTF-8 text: {bad} of its first {len(head)} bytes cannot be read; "
            "convert it to UTF-8 or leave it out"
        )

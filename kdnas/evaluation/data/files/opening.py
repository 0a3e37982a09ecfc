"""What is in a file of data: gzipped or not, as text of which lines end as on Unix."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from kdnas.errors import TaskDataError
from kdnas.reach import ANYWHERE, Reach

MOST_BYTES = 4 << 30
"""Of a file, which is read whole."""
MOST_OF_A_LINE = 1 << 24
"""Bytes, but of JSON."""
MOST_UNPACKED = 1 << 27
"""Bytes that a gzipped file may always unpack to."""
_PART = 1 << 22
"""Bytes that are read at once."""
MOST_TIMES = 30
"""A gzipped file's size that it may unpack to beyond that; tables unpack to some 3 to 20 times."""


def suffix_of(path: Path) -> str:
    """The end of a file's name in lower case, without that of gzip: ``.csv`` of ``A.CSV.gz``."""
    return Path(path.stem).suffix.lower() if is_gzipped(path) else path.suffix.lower()


def is_gzipped(path: Path) -> bool:
    """Whether a file's name says that it is gzipped."""
    return path.suffix.lower() == ".gz"


def read_bytes(
    path: Path, reach: Reach = ANYWHERE, is_enough: Callable[[bytes], bool] | None = None
) -> bytes:
    """What is in a file, unpacked if it is gzipped.

    Args:
        path: of the file.
        reach: how it is opened.
        is_enough: is given one part after the other; what comes behind one of which it says so is
            left out.

    Raises:
        RequestError: it is out of reach.
        TaskDataError: it cannot be read, is larger than ``MOST_BYTES``, or unpacks to far more than
            a table does.
    """
    try:
        with reach.open(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MOST_BYTES:
                raise TaskDataError(
                    f"{path} is larger than {MOST_BYTES >> 30} GiB; take a part of it"
                )
            if not is_gzipped(path):
                wanted = size if is_enough is None else _wanted(stream, is_enough)
                return _no_pointer(path, stream.read(wanted))
            content = bytearray()
            with gzip.open(stream) as unpacked:
                while part := unpacked.read(_PART):
                    content += part
                    if is_enough is not None and is_enough(part):
                        break
                    if len(content) > max(MOST_UNPACKED, MOST_TIMES * stream.tell()):
                        raise TaskDataError(
                            f"{path} unpacks to over {MOST_TIMES} times its size, unlike a table; "
                            "check the file, or unpack it if that is meant"
                        )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TaskDataError(f"{path} is not gzip, or cut off: {error}; check the file") from None
    except OSError as error:
        raise TaskDataError(f"cannot read {path}: {error.strerror}; check the file") from None
    return bytes(content)


def _wanted(stream: BinaryIO, is_enough: Callable[[bytes], bool]) -> int:
    """How many bytes of a file are wanted; looked at before all of it is in memory."""
    length = 0
    while part := stream.read(_PART):
        length += len(part)
        if is_enough(part):
            break
    stream.seek(0)
    return length


class _NoText:
    """Says of a file, part by part, when it has shown that the rest need not be read.

    It has a null character, of which holes of files are made, or goes on and on without the end of
    a line; what is wrong with it is said of what has been read by then.
    """

    def __init__(self, path: Path) -> None:
        self._has_lines = suffix_of(path) != ".json"
        self._since_end = 0

    def __call__(self, part: bytes) -> bool:
        end = max(part.rfind(b"\n"), part.rfind(b"\r"))
        self._since_end = len(part) - end - 1 if end >= 0 else self._since_end + len(part)
        return b"\0" in part or (self._has_lines and self._since_end > MOST_OF_A_LINE)


def _refuse_endless(path: Path, content: bytes) -> None:
    """Refuse a line of millions of letters, which would be cut into cells; JSON is all in one."""
    if len(content) <= MOST_OF_A_LINE or suffix_of(path) == ".json":
        return
    begin, number = 0, 1
    while len(content) - begin > MOST_OF_A_LINE:
        # Carriage returns alone end lines in files of old Macs.
        end = content.rfind(b"\n", begin, begin + MOST_OF_A_LINE)
        end = content.rfind(b"\r", begin, begin + MOST_OF_A_LINE) if end < 0 else end
        if end < 0:
            raise TaskDataError(
                f"{path}, line {number} has more than {MOST_OF_A_LINE >> 20} MiB without an end; "
                "check the file"
            )
        number += content.count(b"\n", begin, end + 1)
        begin = end + 1


def _no_pointer(path: Path, content: bytes) -> bytes:
    """Refuse what stands for a file in a repository that was cloned without its large files."""
    if content.startswith(_POINTER):
        raise TaskDataError(
            f"{path} is a pointer of Git LFS in place of the file; run `git lfs pull` where it was "
            "cloned"
        )
    return content


def read_text(path: Path, reach: Reach = ANYWHERE) -> str:
    """A file's text, without a byte-order mark, its line ends as on Unix.

    Raises:
        RequestError: it is out of reach.
        TaskDataError: it cannot be read, is not UTF-8, or has a line without an end.
    """
    try:
        content = read_bytes(path, reach, _NoText(path))
        _refuse_endless(path, content)
        # Byte-order marks stand in the middle of files that were put together.
        text = content.decode("utf-8").replace("\ufeff", "")
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{path} {_what_else(error)}") from None
    if text.startswith("SQLite format 3"):
        raise TaskDataError(f"{path} is a database of SQLite; write the table that is meant as CSV")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TaskDataError(
            f"{path}, line {line} has a null character, as UTF-16 has beside each letter; convert "
            "the file by `iconv -f UTF-16LE -t UTF-8`, or take the character out"
        )
    text = text.replace("\r\r\n", "\n")  # what Windows makes of lines that it has ended before
    # Alone it ends lines in files of old Macs, and is a character of a text elsewhere.
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def _what_else(error: UnicodeDecodeError) -> str:
    """What a file is that is not UTF-8, and what to do, for messages."""
    content = error.object
    start = content[:6]
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            return what
    line = content.count(b"\n", 0, error.start) + 1
    if 4 * content.count(b"\0") > len(content):
        return "is UTF-16 without a mark; convert it by `iconv -f UTF-16LE -t UTF-8`"
    return (
        f"is not UTF-8 in line {line} (byte {error.start}); convert it from what it was written "
        "in, by `iconv -f WINDOWS-1252 -t UTF-8` if that was Excel in western Europe"
    )


def strict_json(text: str) -> Any:
    """Read JSON whose texts are whole.

    Raises:
        ValueError: it is no JSON, or has half of a character that takes two (a lone surrogate),
            which no tokenizer takes.
        RecursionError: it is nested too deep.
    """
    content = json.loads(text)
    if _HALF.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise ValueError(f"it has half of a character, {half}") from None
    return content


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_POINTER = b"version https://git-lfs.github.com/spec/"
_OTHERS: Mapping[bytes, str] = {
    b"PK": "is an Excel workbook or another zip archive; save the sheet as CSV, or unpack it",
    b"\x1f\x8b": "is gzipped; call it .gz, as in .csv.gz",
    b"PAR1": "is Parquet; call it .parquet",
    b"BZh": "is packed by bzip2; unpack it",
    b"\xfd7zXZ": "is packed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "is packed by Zstandard; unpack it",
    b"ARROW1": "is Arrow; call it .arrow",
    b"\x80": "is a pickle, which is never loaded; write it as CSV or Parquet",
    b"\xff\xfe": "is UTF-16; convert it by `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "is UTF-16; convert it by `iconv -f UTF-16 -t UTF-8`",
}
"""How files of other kinds begin → what to say of them."""

"""What is in a file of data: gzipped or not, as text of which lines end as on Unix."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

from kdnas.errors import TaskDataError
from kdnas.reach import ANYWHERE, Reach

MOST_BYTES = 4 << 30
"""That a gzipped file unpacks to."""


def suffix_of(path: Path) -> str:
    """The end of a file's name in lower case, without that of gzip: ``.csv`` of ``A.CSV.gz``."""
    return Path(path.stem).suffix.lower() if is_gzipped(path) else path.suffix.lower()


def is_gzipped(path: Path) -> bool:
    """Whether a file's name says that it is gzipped."""
    return path.suffix.lower() == ".gz"


def read_bytes(path: Path, reach: Reach = ANYWHERE) -> bytes:
    """What is in a file, unpacked if it is gzipped.

    Raises:
        RequestError: it is out of reach.
        TaskDataError: it cannot be read, or unpacks to more than ``MOST_BYTES``.
    """
    try:
        with reach.open(path) as stream:
            if not is_gzipped(path):
                return stream.read()
            with gzip.open(stream) as unpacked:
                content = unpacked.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TaskDataError(f"{path} is not gzip, or cut off: {error}; check the file") from None
    except OSError as error:
        raise TaskDataError(f"cannot read {path}: {error.strerror}; check the file") from None
    if len(content) > MOST_BYTES:
        raise TaskDataError(
            f"{path} unpacks to more than {MOST_BYTES >> 30} GiB; unpack it, or take a part of it"
        )
    return content


def read_text(path: Path, reach: Reach = ANYWHERE) -> str:
    """A file's text, without a byte-order mark, its line ends as on Unix.

    Raises:
        RequestError: it is out of reach.
        TaskDataError: it cannot be read, or is not UTF-8.
    """
    try:
        text = read_bytes(path, reach).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{path} {_what_else(path, error, reach)}") from None
    # Alone it ends lines in files of old Macs, and is a character of a text elsewhere.
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def _what_else(path: Path, error: UnicodeDecodeError, reach: Reach) -> str:
    """What a file is that is not UTF-8, and what to do, for messages."""
    start = read_bytes(path, reach)[:4]
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            return what
    return f"is not UTF-8 at byte {error.start}; convert it, as by `iconv -f LATIN1 -t UTF-8`"


_OTHERS: Mapping[bytes, str] = {
    b"PK": "is an Excel workbook or another zip archive; save the sheet as CSV, or unpack it",
    b"\x1f\x8b": "is gzipped; call it .gz, as in .csv.gz",
    b"PAR1": "is Parquet; call it .parquet",
    b"\xff\xfe": "is UTF-16; convert it by `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "is UTF-16; convert it by `iconv -f UTF-16 -t UTF-8`",
}
"""How files of other kinds begin → what to say of them."""

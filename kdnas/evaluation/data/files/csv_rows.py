"""Rows of CSV, with real quotes, each with the line that it begins in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kdnas.errors import TaskDataError

_DELIMITERS = (",", ";", "\t")
_LIST = re.compile(r"""\[\s*['"].*['"]\s*\]""", re.DOTALL)
_EXCEL = re.compile(r'"?sep=(.)"?\n', re.IGNORECASE)


def csv_rows(
    path: Path, text: str, is_header: Callable[[Sequence[str]], bool]
) -> Iterator[tuple[int, list[str]]]:
    """Cells of CSV with real quotes; the delimiter is the one that makes the header known.

    A row is where it begins, however many lines it has. One of several lines that is longer or
    shorter than the header has a quote that was not closed, and others in it.

    Args:
        path: of the file, for messages.
        text: of the file.
        is_header: whether these cells name the columns that are looked for.

    Returns:
        The line that each row begins in, and its cells; blank rows are left out.

    Raises:
        TaskDataError: a quote is not closed; names the line.
    """
    csv.field_size_limit((1 << 31) - 1)  # what a C long holds everywhere
    said = _EXCEL.match(text)
    if said is not None:  # Excel's own line above the header
        text = "\n" + text[said.end() :]
    header = text.lstrip("\n").partition("\n")[0]
    known = (
        delimiter
        for delimiter in _DELIMITERS
        if is_header(next(csv.reader([header], **_dialect(delimiter)), []))
    )
    delimiter = said[1] if said is not None else next(known, ",")
    # Without a newline of its own, a line may end as on old Macs where others do not.
    reader = csv.reader(io.StringIO(text, newline=""), **_dialect(delimiter), strict=True)
    width, start = None, 1
    try:
        for cells in reader:
            width = len(cells) if width is None else width
            if reader.line_num > start and any(cells) and len(cells) != width:
                raise TaskDataError(_unclosed(path, start, f"runs on to line {reader.line_num}"))
            if any(cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise TaskDataError(_unclosed(path, start, "is not closed")) from None
        if "expected after" in str(error):
            where = (
                f"line {start}"
                if reader.line_num == start
                else f"lines {start} to {reader.line_num}"
            )
            raise TaskDataError(
                f"{path}, {where}: text stands behind a closing quote; put the whole cell in "
                "quotes and double those in it, or save the file with tabs, as .tsv"
            ) from None
        raise TaskDataError(f"{path}, line {start} is not CSV: {error}; check its quotes") from None


def is_written_list(cell: str) -> bool:
    """Whether a cell is a list of texts that is written out, as pandas and JSON do."""
    return _LIST.fullmatch(cell.strip()) is not None


def _dialect(delimiter: str) -> dict[str, Any]:
    """Blanks may stand between a delimiter and a quote."""
    return {"delimiter": delimiter, "skipinitialspace": delimiter != "\t"}


def _unclosed(path: Path, line: int, how: str) -> str:
    return (
        f"{path}, line {line} has a quote that {how}; close it, or double quotes that are of the "
        "text"
    )

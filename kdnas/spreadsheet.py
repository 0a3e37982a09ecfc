"""CSV that a spreadsheet opens as it is meant: names that others chose do not become formulas."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


class CsvWriter:
    """Writes rows as :func:`csv.writer` does, but texts that begin as a formula with a quote.

    Args:
        stream: to write to.
        lineterminator: end of a row.
    """

    def __init__(self, stream: TextIO, lineterminator: str = "\n") -> None:
        self._writer = csv.writer(stream, lineterminator=lineterminator)

    def writerow(self, row: Iterable[Any]) -> None:
        """Write a row."""
        self._writer.writerow([_quoted(cell) for cell in row])

    def writerows(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows."""
        for row in rows:
            self.writerow(row)


def _quoted(cell: Any) -> Any:
    if not (isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS)):
        return cell
    try:
        float(cell)  # a number that is written already
    except ValueError:
        return f"'{cell}"
    return cell

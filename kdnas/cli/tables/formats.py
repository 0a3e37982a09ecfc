"""Tables on stdout: for people, for documents, for other programs."""

from __future__ import annotations

import io
from collections.abc import Sequence

from kdnas.spreadsheet import CsvWriter

Rows = Sequence[Sequence[str]]


def as_text(header: Sequence[str], rows: Rows, right: Sequence[str] = ()) -> str:
    """Lay rows out in columns that are as wide as their widest cell.

    Args:
        header: names of the columns.
        rows: cells, as many in each row as there are columns.
        right: columns whose cells are aligned to the right.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def as_markdown(header: Sequence[str], rows: Rows, right: Sequence[str] = ()) -> str:
    """Write rows as a table of Markdown."""
    rule = ["---:" if name in right else "---" for name in header]
    body = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (body[0], rule, *body[1:]))


def as_csv(header: Sequence[str], rows: Rows) -> str:
    """Write rows as CSV, without the last line's end."""
    stream = io.StringIO()
    CsvWriter(stream).writerows([header, *rows])
    return stream.getvalue().rstrip("\n")

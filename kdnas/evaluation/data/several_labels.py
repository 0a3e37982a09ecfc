"""Labels of texts that may have several, or none: lists, names with a mark between, or columns."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.tables import Row, class_name

MARKS: Final = ("|", ";", ",")
"""Between the labels of a cell; the first that a file has anywhere is the one of all of it."""
_YES = frozenset({"1", "true", "yes"})
_NO = frozenset({"0", "false", "no", ""})
_UNKNOWN = frozenset({"-1"})
"""What Kaggle's test parts write for a row that is not scored."""


def labels_of(rows: Sequence[Row]) -> list[tuple[str, ...] | None]:
    """Return the labels of each row in the alphabet's order; None where they are not known.

    A cell holds a list, as JSON or as Python prints it, or names with ``|``, ``;`` or ``,`` between
    them; a blank one has no label, unless all cells of a file are blank: then nothing is known. Of
    a column for each label the cells say yes (1, true, yes) or no.

    Raises:
        TaskDataError: a cell of a column for each label says something else; names the line.
    """
    mark = _mark(rows)
    found = [_labels(row, mark) for row in rows]
    plain = not any(isinstance(row.label, Mapping) for row in rows)
    if plain and not any(found) and all(isinstance(row.label, str) for row in rows):
        return [None] * len(rows)
    return found


def _mark(rows: Sequence[Row]) -> str | None:
    cells = [row.label for row in rows if isinstance(row.label, str) and _listed(row.label) is None]
    return next((mark for mark in MARKS if any(mark in cell for cell in cells)), None)


def _labels(row: Row, mark: str | None) -> tuple[str, ...] | None:
    cell = row.label
    if cell is None:
        return None
    if isinstance(cell, Mapping):
        said = {name: _says_yes(row, name, value) for name, value in cell.items()}
        if None in said.values():
            return None
        return tuple(sorted(name for name, yes in said.items() if yes))
    values = _listed(cell) if isinstance(cell, str) else cell
    if values is None:
        values = [cell] if mark is None else cell.split(mark)
    if not isinstance(values, list | tuple | set | frozenset):
        values = [values]
    return tuple(sorted({class_name(value) for value in values} - {""}))


def _listed(cell: str) -> list[Any] | None:
    """The values of a list that is written out, in JSON or as Python does."""
    if not (cell.strip().startswith("[") and cell.strip().endswith("]")):
        return None
    try:
        values = ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return values if isinstance(values, list) else None


def _says_yes(row: Row, name: str, value: Any) -> bool | None:
    text = "" if value is None else class_name(value).lower()
    if text in _UNKNOWN:
        return None
    if text not in _YES | _NO:
        raise TaskDataError(
            f"{row.where} has {value!r} in the column {name!r}, where yes or no belongs; write 1 "
            "or 0, or name one column of lists with --label"
        )
    return text in _YES

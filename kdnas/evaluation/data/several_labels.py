"""Labels of texts that may have several, or none: lists, names with a mark between, or columns."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.tables import MISSING, Row, class_name

MARKS: Final = ("|", ";", ",", "；", "，", "、", "،", "؛")
"""Between the labels of a cell; the first that a file has anywhere is the one of all of it."""
_YES = frozenset({"1", "1.0", "true", "yes"})
_NO = frozenset({"0", "0.0", "false", "no", ""})
_BESIDE = re.compile(r"""['"0-9]\s+['"0-9]""")
_NUMPY = re.compile(r"""\[\s*(?:'[^']*'|"[^"]*")(?:\s+(?:'[^']*'|"[^"]*"))+\s*\]""")
"""A list of texts as NumPy prints it."""
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_EMPTY = frozenset({"()", "{}", "set()", "frozenset()"})
_ARRAY = re.compile(r"array\((\[.*\])(?:,\s*dtype=.*)?\)", re.DOTALL)
"""As NumPy writes it in a table of pandas."""
_MOST_SHOWN = 60
_UNKNOWN = frozenset({"-1", *MISSING})
"""What test parts have for a row that is not scored."""


def labels_of(rows: Sequence[Row]) -> list[tuple[str, ...] | None]:
    """Return the labels of each row in the alphabet's order; None where they are not known.

    A cell holds a list, as JSON or as Python prints it, or names with ``|``, ``;`` or ``,`` between
    them; a blank one has no label, unless all cells of a file are blank: then nothing is known. Of
    a column for each label the cells say yes (1, true, yes) or no.

    Raises:
        TaskDataError: a cell of a column for each label says something else, a list cannot be read
            or has no names, or cells have different marks; names the line.
    """
    mark = _mark(rows)
    found = [_labels(row, mark) for row in rows]
    if {name for names in found for name in names or ()} == {"0", "1"} and rows:
        raise TaskDataError(
            f"{rows[0].where} and all others have 0 or 1 for their labels; name the columns of all "
            "labels with commas, or take `own.kind: classification`"
        )
    _refuse_other_marks(rows, mark, found)
    plain = not any(isinstance(row.label, Mapping) for row in rows)
    if plain and not any(found) and all(isinstance(row.label, str) for row in rows):
        return [None] * len(rows)
    return found


def _mark(rows: Sequence[Row]) -> str | None:
    cells = [row.label for row in rows if isinstance(row.label, str) and not _is_list(row.label)]
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
    values: Any = cell
    if isinstance(cell, str):
        plain = [cell] if mark is None else cell.split(mark)
        values = _listed(row, cell) if _is_list(cell) else plain
    if not isinstance(values, list | tuple | set | frozenset):
        values = [values]
    strange = next((value for value in values if isinstance(value, list | tuple | dict)), None)
    if strange is not None:
        raise TaskDataError(
            f"{row.where} has {_shown(strange)} where the name of a label belongs; write a list of "
            "names"
        )
    known = [value for value in values if value is not None and value == value]  # NaN is not
    names = [class_name(value) for value in known]
    if len(set(names)) < len(names) and set(names) <= {"0", "1"}:
        raise TaskDataError(
            f"{row.where} holds 0 and 1 for each label, {_shown(cell)}, and not their names; write "
            "the names of its labels, or a column for each label"
        )
    return tuple(sorted(set(names) - {""}))


def _is_list(cell: str) -> bool:
    """Whether a cell begins as a list that is written out."""
    text = cell.strip()
    if text in _EMPTY or _ARRAY.fullmatch(text):
        return True
    ends = text[:1] + text[-1:]
    quoted = "'" in text or '"' in text
    return ends in {"[]", "{}"} or (ends == "()" and quoted)


def _listed(row: Row, cell: str) -> Collection[Any]:
    """The values of a list that is written out, in JSON or as Python does.

    Raises:
        TaskDataError: it cannot be read; names the line.
    """
    text = cell.strip()
    if text in _EMPTY:
        return ()
    array = _ARRAY.fullmatch(text)
    text = array[1] if array else text
    if _NUMPY.fullmatch(text):
        return [one or other for one, other in _QUOTED.findall(text)]
    values: Any = None
    with suppress(ValueError, RecursionError):
        values = json.loads(text)
    # What stands side by side without a comma, as NumPy writes it, Python would join.
    if values is None and not _BESIDE.search(text):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            values = ast.literal_eval(text)
    if values is None and text[:1] + text[-1:] == "{}":  # an array of PostgreSQL
        (values,) = csv.reader([text[1:-1]], skipinitialspace=True)
    if not isinstance(values, list | tuple | set):
        raise TaskDataError(
            f"{row.where} holds {_shown(cell)}, which is no list of labels; write it as "
            '["one", "other"], or the names with | between them'
        )
    return values


def _refuse_other_marks(
    rows: Sequence[Row], mark: str | None, found: Sequence[tuple[str, ...] | None]
) -> None:
    """Refuse a cell whose parts by another mark than the file's are labels of other rows."""
    several = {name for names in found if names and len(names) > 1 for name in names}
    for row, names in zip(rows, found, strict=True):
        if not isinstance(row.label, str) or _is_list(row.label) or not names or len(names) > 1:
            continue
        for other in MARKS:
            parts = [part.strip() for part in row.label.split(other)]
            if other != mark and len(parts) > 1 and several.issuperset(parts):
                raise TaskDataError(
                    f"{row.where} has {other!r} between labels, {_shown(row.label)}, where other "
                    f"rows have {mark!r}; write the same everywhere"
                )


def _shown(cell: Any) -> str:
    text = repr(cell)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …"


def _says_yes(row: Row, name: str, value: Any) -> bool | None:
    text = "" if value is None else class_name(value).lower()
    if text in _UNKNOWN:
        return None
    if text not in _YES | _NO:
        raise TaskDataError(
            f"{row.where} has {value!r} in the column {name!r}, where yes or no belongs; write 1 "
            "or 0, or name one column of lists as `own.label`"
        )
    return text in _YES

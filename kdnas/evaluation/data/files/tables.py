"""Rows of a table: TSV as benchmarks publish it, CSV, JSON, JSON Lines, Parquet; gzipped, too."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.csv_rows import csv_rows
from kdnas.evaluation.data.files.opening import read_text, suffix_of
from kdnas.evaluation.data.files.records import Record, read_records
from kdnas.evaluation.data.files.watching import PartColumn, RowsInCells, is_number
from kdnas.evaluation.tasks.examples import ID_COLUMNS
from kdnas.evaluation.tasks.task import RECORD_FILES, Columns, LocalLayout
from kdnas.reach import ANYWHERE, Reach

# Some published files hold a few torn lines; more than this share is a wrong layout.
MAX_TORN_SHARE = 0.01
_FASTTEXT = "__label__"
"""Before a label, in its files."""
NEARLY = 0.8
"""How alike a name is to that of a column that is meant."""
MOST_WORDS_OF_A_NAME = 4
"""Of a column; more are a text."""
MOST_OF_A_CELL = 40
"""Characters that are shown of a cell."""
PART_COLUMNS = ("split", "partition", "subset", "set", "data_split", "ml_use", "semeval_set")
"""Columns that say of each row which part it is of, in lower case."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as read.

    Attributes:
        source: file or data set, with the unit that is counted, such as ``dev.tsv, line``.
        number: of the line or row.
        text: the first text, or a list of words.
        pair: the second text; None where the file has no such column.
        label: None where the file has no such column; of a column for each label, its cell.
        language: where the file says it.
        id: of the example, where the file has a column of them.
        part: that the row is of, where the file has a column that says it.
    """

    source: str
    number: int
    text: Any
    pair: Any = None
    label: Any = None
    language: str | None = None
    id: Any = None
    part: Any = None

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.source} {self.number}"


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file.

    Attributes:
        rows: in the file's order.
        labelled: there is a column of labels.
        notes: what was left out.
        lacking: what to say where a column of labels must be and is not.
        about: which columns were taken, in words.
        part_column: that says which part a row is of; empty where none does.
    """

    rows: Sequence[Row]
    labelled: bool
    notes: tuple[str, ...] = ()
    lacking: str = ""
    about: str = ""
    part_column: str = ""


MISSING = frozenset(
    {"nan", "null", "(null)", "n/a", "na", "<na>", "nat", "nil", "none", "\\n", "?", ".", "-", "--"}
    | {"#n/a", "#ref!", "#value!", "undefined", "unlabeled", "unlabelled", "missing"}
    | {"not available", "todo"}
)
"""Cells that look as if there was nothing in them, in lower case."""


def class_name(label: Any) -> str:
    """A class as text: true and 1.0 are what pandas and JSON make of classes that are names."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).strip()


def read_table(path: Path, layout: LocalLayout, reach: Reach = ANYWHERE) -> Table:
    """Read a file by its suffix, which ``.gz`` may follow.

    ``.tsv`` and ``.txt`` know no quotes, ``.csv`` does; ``.json`` is a list of objects, or an
    object a line.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: the file cannot be read, or has none of the known headers.
    """
    suffix = suffix_of(path)
    if suffix in RECORD_FILES:
        return _from_records(path, *read_records(path, reach), layout)
    text = read_text(path, reach)
    if suffix == ".csv" and not _is_tabbed(text, layout):
        cells = csv_rows(path, text, lambda names: known_columns(names, layout.columns) is not None)
        return _from_cells(path, cells, layout, exact=True)
    lines = enumerate(text.split("\n"), 1)
    return _from_cells(path, ((n, line.split("\t")) for n, line in lines if line.strip()), layout)


def _is_tabbed(text: str, layout: LocalLayout) -> bool:
    """Whether what is called CSV has tabs and no header, as the STS benchmark is published."""
    first = text.partition("\n")[0].split("\t")
    return (
        layout.positions is not None
        and len(first) > max(place or 0 for place in layout.positions)
        and known_columns(first, layout.columns) is None
    )


def known_columns(names: Sequence[str], known: Sequence[Columns]) -> Columns | None:
    """The first of the known headers whose texts are among the names, whatever their case.

    The label may be missing: test parts are published without.
    """
    there = {name.strip().lower() for name in names}
    fits = [c for c in known if {c.text.lower(), (c.pair or c.text).lower()} <= there]
    labelled = [c for c in fits if c.labels_in(there)]
    in_languages = [c for c in labelled if c.language and c.language.lower() in there]
    plain = [c for c in labelled if c.language is None]
    return next(iter([*in_languages, *plain, *fits]), None)


def _plain_name(name: str) -> str:
    """The name of a column as people type it: in lower case, with single blanks."""
    return " ".join(unicodedata.normalize("NFKC", name).replace("’", "'").split()).lower()


def _from_cells(
    path: Path,
    cells: Iterator[tuple[int, list[str]]],
    layout: LocalLayout,
    *,
    exact: bool = False,
) -> Table:
    """Keep the columns that are wanted: those that are not may be most of a large file.

    Args:
        path: of the file, for messages.
        cells: line numbers and cells, the header first.
        layout: says which columns are wanted.
        exact: cells may be in quotes.
    """
    first = next(cells, None)
    if first is None:
        raise TaskDataError(f"{path} is empty; check the file")
    header = [_plain_name(name) for name in first[1]]
    columns = known_columns(header, layout.columns)
    _refuse_twice(path, header, columns)
    pair: int | None
    label: int | None
    if columns is not None:
        text, labels = header.index(columns.text.lower()), _places(header, columns)
        pair, language = _index(header, columns.pair), _index(header, columns.language)
        taken = (text, pair, language, *labels)
        id_, part = (_one_of(header, names, taken) for names in (ID_COLUMNS, PART_COLUMNS))
        about = _about(first[1], text, pair, labels)
    elif layout.positions is not None and len(header) > max(n or 0 for n in layout.positions[:2]):
        text, pair, label = layout.positions
        language = id_ = part = None
        labels = (label,) if label < len(header) else ()
        cells = chain([first], cells)
        numbers = [str(n) for n in range(1, len(header) + 1)]
        about = _about(numbers, text, pair, labels, before="no header; ")
    elif first[1][0].lstrip().startswith(("{", "[{")):
        raise TaskDataError(f"{path} is JSON, and no table; call it .jsonl, or .json")
    elif (_is_data(first[1]) and not _is_nearly(header, layout)) or first[1][0].startswith(
        _FASTTEXT
    ):
        raise TaskDataError(_headless(path, first[1], layout))
    else:
        below = next(cells, first)
        if len([cell for cell in first[1] if cell.strip()]) == 1 < len(below[1]):
            raise TaskDataError(
                f"{path}, line {first[0]} is no header: line {below[0]} has {len(below[1])} "
                "columns; take out what stands above the header"
            )
        raise TaskDataError(_lacking(path, first[1], layout))
    needed = 1 + max(n for n in (text, pair, *labels, language) if n is not None)
    # Where a comma or tab of the text parts it, another cell stands in the label's place.
    most = len(header) if columns is not None else inf
    rows: list[Row] = []
    torn: list[tuple[int, int]] = []
    again = 0
    source = f"{path}, line"
    is_open = columns is not None and part is None
    parts = PartColumn(len(header) if is_open else 0, (text, pair, language, id_, *labels))
    in_cells = RowsInCells(path, len(header), labels[0]) if exact and columns and labels else None
    for number, row in cells:
        while len(row) > most and not row[-1].strip():
            row.pop()
        if columns is not None and _is_header(path, number, row, header, (text, *labels)):
            again += 1
            continue
        if not needed <= len(row) <= most:
            torn.append((number, len(row)))
            continue
        second, spoken = (None if n is None else row[n] for n in (pair, language))
        own, of = (None if n is None or n >= len(row) else row[n] for n in (id_, part))
        answer = _label(first[1], labels, row)
        rows.append(Row(source, number, row[text], second, answer, spoken, own, of))
        parts.see(row)
        if in_cells is not None:
            in_cells.see(number, row)
    by_values = parts.found()
    if by_values is not None:
        part, said_of = by_values
        rows = [replace(row, part=value) for row, value in zip(rows, said_of, strict=True)]
    _refuse_torn(path, torn, len(rows), (needed, most), exact=exact, wanted=_wanted(layout))
    lines = "line" if len(torn) == 1 else "lines"
    notes = [f"{len(torn)} torn {lines} of {path.name} left out"] if torn else []
    if again:
        lines = "line" if again == 1 else "lines"
        notes.append(f"{again} {lines} of {path.name} with the header once more left out")
    if not exact and rows and all(_is_quoted(row.text) for row in rows):
        notes.append(
            f"all texts of {path.name} are in quotes, which are taken as text; call it .csv if "
            "they are none"
        )
    notes += [] if in_cells is None else in_cells.notes()
    doubled = sum(_is_quoted(row.text) and '""' in row.text[1:-1] for row in rows)
    if not exact and doubled:
        notes.append(
            f"{doubled} texts of {path.name} are in quotes with doubled ones in them, as CSV has "
            "them, and are taken as they are; call it .csv if they are quoted"
        )
    lacking = _lacking(path, first[1], layout)
    said = "" if part is None else first[1][part].strip()
    return Table(rows, bool(labels), tuple(notes), lacking, about, said)


def _refuse_torn(
    path: Path,
    torn: Sequence[tuple[int, int]],
    whole: int,
    bounds: tuple[int, float],
    *,
    exact: bool,
    wanted: str,
) -> None:
    """Refuse a table of which too many lines have other columns than its header.

    Args:
        path: of the file, for messages.
        torn: number of each such line, and how many columns it has.
        whole: how many lines are as the header.
        bounds: how many columns they must have at least and at most.
        exact: cells may be in quotes.
        wanted: what the header must have, in words.
    """
    if len(torn) <= MAX_TORN_SHARE * (whole + len(torn)):
        return
    line, found = torn[0]
    needed, most = bounds
    if found > most:
        mend = "give each column a name, and take tabs out of texts"
        if exact:
            mend = "put texts with commas in quotes"
        if not whole and {columns for _, columns in torn} == {most + 1}:
            mend += (
                "; or write a name before the others, if the first column names rows, as R has it"
            )
        raise TaskDataError(
            f"{path} has {found} columns in line {line}, but {most} in its header; {mend}"
        )
    columns_found = "column" if found == 1 else "columns"
    mend = "" if exact else ", or call the file .csv if texts in quotes have line ends"
    raise TaskDataError(
        f"{path} has only {found} {columns_found} in line {line}, {needed} are needed: {wanted}; "
        f"mend the line{mend}"
    )


def _is_header(
    path: Path, number: int, row: Sequence[str], header: Sequence[str], taken: Sequence[int]
) -> bool:
    """Whether a row is the header once more, as where files were put together.

    Raises:
        TaskDataError: it is another one, so that what follows stands in other columns.
    """
    if len(taken) < 2 or len(row) <= max(taken):
        return False
    # A text, as most are: nothing more to look at.
    if len(row[taken[0]]) > MOST_OF_A_CELL + len(header[taken[0]]):
        return False
    cells = [cell.strip().strip('"').lower() for cell in row]
    if all(cells[place] == header[place] for place in taken):
        return True
    if set(cells) <= set(header) and len(set(cells)) == len(header):
        raise TaskDataError(
            f"{path}, line {number} has another header, {', '.join(cells)}; part the files that "
            "were put together there"
        )
    return False


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == '"'


def _places(header: Sequence[str], columns: Columns) -> tuple[int, ...]:
    """Where the labels are, in a header in lower case."""
    return tuple(header.index(name) for name in columns.labels_in(header))


def _label(names: Sequence[str], places: Sequence[int], cells: Sequence[Any]) -> Any:
    """The label of a row; of a column for each label, its name → its cell."""
    if len(places) < 2:
        return cells[places[0]] if places else None
    return {names[place].strip(): cells[place] for place in places}


def _refuse_twice(path: Path, header: Sequence[str], columns: Columns | None) -> None:
    """Refuse a header with two columns of a name that is wanted."""
    wanted = () if columns is None else (columns.text, columns.pair, *columns.labels_in(header))
    for name in (one.lower() for one in wanted if one is not None):
        places = [str(n) for n, found in enumerate(header, 1) if found == name]
        if len(places) > 1:
            raise TaskDataError(
                f"{path} has {len(places)} columns called {name!r}, {' and '.join(places)}; give "
                "the one that is not meant another name in the header"
            )


def _is_data(cells: Sequence[str]) -> bool:
    """Whether a first line looks like a row: a number or a long text names no column."""
    return any(is_number(cell) or len(cell.split()) > MOST_WORDS_OF_A_NAME for cell in cells)


def _is_nearly(header: Sequence[str], layout: LocalLayout) -> bool:
    """Whether a first line has nearly the names that are wanted, so that it is a header."""
    wanted = [name for c in layout.columns for name in (c.text, c.pair, c.label) if name]
    return any(get_close_matches(name.lower(), header, cutoff=NEARLY) for name in wanted)


def _headless(path: Path, cells: Sequence[str], layout: LocalLayout) -> str:
    """What to say where the first line is a row, with a header to paste."""
    if cells and cells[0].startswith(_FASTTEXT):
        return (
            f"{path} is in the layout of fastText; write a table with a header, a label and its "
            "text a line, as .tsv"
        )
    known = layout.columns[0]
    names = [name for name in (known.text, known.pair, known.label) if name is not None]
    names += [f"column{n}" for n in range(len(names) + 1, len(cells) + 1)]
    shown = " | ".join(_short(cell) for cell in cells)
    mark = {".csv": ","}.get(suffix_of(path), "\\t")
    return (
        f"{path} has no header line, its first line is a row: {shown}; put one above it, names "
        f"in the order of your columns: {{ printf '{mark.join(names)}\\n'; cat {path}; }} > NEW"
        f"{suffix_of(path)}"
    )


def _short(cell: str) -> str:
    cell = " ".join(cell.split())
    return cell if len(cell) <= MOST_OF_A_CELL else f"{cell[: MOST_OF_A_CELL - 2]} …"


def _from_records(path: Path, unit: str, records: Sequence[Record], layout: LocalLayout) -> Table:
    if not records:
        raise TaskDataError(f"{path} is empty; check the file")
    names = list(dict.fromkeys(name for _, record in records for name in record))
    columns = known_columns(names, layout.columns)
    if columns is None:
        raise TaskDataError(_lacking(path, names, layout))
    lower = [name.strip().lower() for name in names]
    text, pair = (_index(lower, name) for name in (columns.text, columns.pair))
    labels = _places(lower, columns)
    taken = (text, pair, *labels)
    id_, part = (_one_of(lower, known, taken) for known in (ID_COLUMNS, PART_COLUMNS))

    def row(number: int, record: Mapping[str, Any]) -> Row:
        cells = [record.get(name) for name in names]
        first, second, own, of = (None if n is None else cells[n] for n in (text, pair, id_, part))
        second = None if pair is None else second_text(second)
        label = _label(names, labels, cells)
        return Row(f"{path}, {unit}", number, first, second, label, id=own, part=of)

    if part is None:
        parts = PartColumn(len(names), (*taken, id_))
        for _, record in records:
            parts.see([record.get(name) for name in names])
        by_values = parts.found()
        part = None if by_values is None else by_values[0]
    rows = [row(number, record) for number, record in records]
    notes = (
        _not_accepted(path, records)
        if "answer" in set(lower) - {lower[n] for n in taken if n}
        else ()
    )
    about = _about(names, text, pair, labels)
    said = "" if part is None else names[part].strip()
    return Table(rows, bool(labels), notes, _lacking(path, names, layout), about, said)


def _not_accepted(path: Path, records: Sequence[Record]) -> tuple[str, ...]:
    """Say which records of Prodigy somebody has not accepted."""
    said = [str(record.get("answer")) for _, record in records]
    count = len(said) - said.count("accept")
    if not count or not set(said) <= {"accept", "reject", "ignore"}:
        return ()
    return (
        f"{count} of {len(said)} rows of {path.name} are taken though their answer is not accept",
    )


def second_text(value: Any) -> Any:
    """Return the second text of a row; one that is null is empty, as an empty cell is.

    None would say that the file has no second texts.
    """
    return "" if value is None else value


def _about(
    names: Sequence[str],
    text: int | None,
    pair: int | None,
    labels: Sequence[int],
    *,
    before: str = "",
) -> str:
    """Which columns were taken, in words."""
    taken = {"text": text, "second text": pair}
    said = [f"{what} in {names[n].strip()!r}" for what, n in taken.items() if n is not None]
    if labels:
        said.append("label in " + " and ".join(repr(names[n].strip()) for n in labels))
    return before + ", ".join(said)


def _index(names: Sequence[str], wanted: str | None) -> int | None:
    if wanted is None or wanted.lower() not in names:
        return None
    return names.index(wanted.lower())


def _one_of(
    names: Sequence[str], wanted: Sequence[str], taken: Collection[int | None]
) -> int | None:
    """Where the first is of the wanted columns that are not taken for something else."""
    places = (_index(names, name) for name in wanted)
    return next((place for place in places if place is not None and place not in taken), None)


def _lacking(path: Path, names: Sequence[str], layout: LocalLayout) -> str:
    if len(names) == 1 and any(mark in names[0] for mark in "|,;"):
        return (
            f"{path} has the only column {_short(names[0])}; part columns by commas, semicolons or "
            "tabs, and put no quotes around whole lines"
        )
    if names and all(len(name) > 1 and name[0] == name[-1] == "'" for name in names):
        return f"{path} has its cells in single quotes; write double ones"
    if names and all(_is_quoted(name.strip()) for name in names):
        return f"{path} has its cells in quotes, as CSV has; call it .csv"
    listed = ", ".join(name.strip() for name in names)
    if len(listed) > 200:
        listed = listed[:200] + " …"
    return f"{path} has the columns {listed}; {_wanted(layout)}{layout.advice}"


def _wanted(layout: LocalLayout) -> str:
    """What a header must have, for messages."""
    choices = [
        " and ".join(name for name in (c.text, c.pair, c.label) if name) for c in layout.columns
    ]
    return f"it needs {' or '.join(choices)}"

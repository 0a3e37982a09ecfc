"""Rows of a table: TSV as benchmarks publish it, CSV, JSON, JSON Lines, Parquet; gzipped, too."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kdnas.errors import TaskDataError
from kdnas.evaluation.tasks.examples import ID_COLUMNS
from kdnas.evaluation.tasks.task import Columns, LocalLayout
from kdnas.reach import ANYWHERE, Reach

# Some published files hold a few torn lines; more than this share is a wrong layout.
MAX_TORN_SHARE = 0.01
MOST_BYTES = 4 << 30
"""That a gzipped file unpacks to."""
MOST_WORDS_OF_A_NAME = 4
"""Of a column; more are a text."""
_MOST_KEYS = 5
MOST_OF_A_CELL = 40
"""Characters that are shown of a cell."""
_EXCEL = re.compile(r"sep=(.)\n")
RECORDS = (".json", ".jsonl", ".ndjson", ".parquet")
"""Ends of files whose rows say themselves what they hold."""
Record = tuple[int, Mapping[str, Any]]


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
    """

    source: str
    number: int
    text: Any
    pair: Any = None
    label: Any = None
    language: str | None = None
    id: Any = None

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
    """

    rows: Sequence[Row]
    labelled: bool
    notes: tuple[str, ...] = ()
    lacking: str = ""
    about: str = ""


def class_name(label: Any) -> str:
    """A class as text: true and 1.0 are what pandas and JSON make of classes that are names."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).strip()


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


def read_table(path: Path, layout: LocalLayout, reach: Reach = ANYWHERE) -> Table:
    """Read a file by its suffix, which ``.gz`` may follow.

    ``.tsv`` and ``.txt`` know no quotes, ``.csv`` does; ``.json`` is a list of objects, or an
    object a line.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: the file cannot be read, or has none of the known headers.
    """
    suffix = suffix_of(path)
    if suffix in RECORDS:
        return _from_records(path, *read_records(path, reach), layout)
    text = read_text(path, reach)
    if suffix == ".csv" and not _is_tabbed(text, layout):
        return _from_cells(path, _csv_cells(path, text, layout), layout, exact=True)
    lines = enumerate(text.split("\n"), 1)
    return _from_cells(path, ((n, line.split("\t")) for n, line in lines if line.strip()), layout)


def read_records(path: Path, reach: Reach = ANYWHERE) -> tuple[str, list[Record]]:
    """Read the objects of a JSON, JSON Lines or Parquet file, by its suffix.

    Returns:
        What is counted (``line``, ``entry`` or ``row``), and each with its number.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: it cannot be read.
    """
    suffix = suffix_of(path)
    if suffix == ".json":
        return _json(path, reach)
    if suffix == ".parquet":
        return "row", _parquet(path, reach)
    return "line", _json_lines(path, reach)


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
        exact: rows that are longer than the header are torn, too: where a comma of the text is
            not in quotes, another cell than the label's stands in the label's place.
    """
    first = next(cells, None)
    if first is None:
        raise TaskDataError(f"{path} is empty; check the file")
    header = [name.strip().lower() for name in first[1]]
    columns = known_columns(header, layout.columns)
    _refuse_twice(path, header, columns)
    pair: int | None
    label: int | None
    if columns is not None:
        text, labels = header.index(columns.text.lower()), _places(header, columns)
        pair, language = _index(header, columns.pair), _index(header, columns.language)
        id_ = _id_column(header, (text, pair, *labels))
        about = _about(first[1], text, pair, labels)
    elif layout.positions is not None and len(header) > max(n or 0 for n in layout.positions[:2]):
        text, pair, label = layout.positions
        language = id_ = None
        labels = (label,) if label < len(header) else ()
        cells = chain([first], cells)
        numbers = [str(n) for n in range(1, len(header) + 1)]
        about = _about(numbers, text, pair, labels, before="no header; ")
    elif _is_data(first[1]):
        raise TaskDataError(_headless(path, first[1], layout))
    else:
        raise TaskDataError(_lacking(path, first[1], layout))
    needed = 1 + max(n for n in (text, pair, *labels, language) if n is not None)
    most = len(header) if exact else inf
    rows: list[Row] = []
    torn: list[tuple[int, int]] = []
    source = f"{path}, line"
    for number, row in cells:
        if not needed <= len(row) <= most:
            torn.append((number, len(row)))
            continue
        second, spoken = (None if n is None else row[n] for n in (pair, language))
        own = None if id_ is None or id_ >= len(row) else row[id_]
        answer = _label(first[1], labels, row)
        rows.append(Row(source, number, row[text], second, answer, spoken, own))
    if len(torn) > MAX_TORN_SHARE * (len(rows) + len(torn)):
        line, found = torn[0]
        if found > most:
            raise TaskDataError(
                f"{path} has {found} columns in line {line}, but {most} in its header; put texts "
                "with commas in quotes"
            )
        columns_found = "column" if found == 1 else "columns"
        raise TaskDataError(
            f"{path} has only {found} {columns_found} in line {line}, {needed} are needed; "
            f"{_wanted(layout)}"
        )
    lines = "line" if len(torn) == 1 else "lines"
    notes = [f"{len(torn)} torn {lines} of {path.name} left out"] if torn else []
    if not exact and rows and all(_is_quoted(row.text) for row in rows):
        notes.append(
            f"all texts of {path.name} are in quotes, which are taken as text; call it .csv if "
            "they are none"
        )
    return Table(rows, bool(labels), tuple(notes), _lacking(path, first[1], layout), about)


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

    def is_number(cell: str) -> bool:
        return cell.strip().lstrip("+-").replace(".", "", 1).isdigit()

    return any(is_number(cell) or len(cell.split()) > MOST_WORDS_OF_A_NAME for cell in cells)


def _headless(path: Path, cells: Sequence[str], layout: LocalLayout) -> str:
    """What to say where the first line is a row, with a header to paste."""
    known = layout.columns[0]
    names = [name for name in (known.text, known.pair, known.label) if name is not None]
    names += [f"column{n}" for n in range(len(names) + 1, len(cells) + 1)]
    shown = " | ".join(_short(cell) for cell in cells)
    mark = {".csv": ","}.get(suffix_of(path), "\t")
    return (
        f"{path} has no header line, its first line is a row: {shown}; add {mark.join(names)!r} "
        "above it, with the names in the order of your columns"
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
    id_ = _id_column(lower, (text, pair, *labels))

    def row(number: int, record: Mapping[str, Any]) -> Row:
        cells = [record.get(name) for name in names]
        first, second, own = (None if n is None else cells[n] for n in (text, pair, id_))
        second = None if pair is None else second_text(second)
        return Row(f"{path}, {unit}", number, first, second, _label(names, labels, cells), id=own)

    rows = [row(number, record) for number, record in records]
    about = _about(names, text, pair, labels)
    return Table(rows, bool(labels), (), _lacking(path, names, layout), about)


def second_text(value: Any) -> Any:
    """Return the second text of a row; one that is null is empty, as an empty cell is.

    None would say that the file has no second texts.
    """
    return "" if value is None else value


def _csv_cells(path: Path, text: str, layout: LocalLayout) -> Iterator[tuple[int, list[str]]]:
    """Cells of CSV with real quotes; the delimiter is the one that makes the header known.

    A row is where it begins, however many lines it has. One of several lines that is longer or
    shorter than the header has a quote that was not closed, and others in it.
    """
    said = _EXCEL.match(text)
    if said is not None:  # Excel's own line above the header
        text = "\n" + text[said.end() :]
    header = text.lstrip("\n").partition("\n")[0]
    known = (
        d
        for d in (",", ";", "\t")
        if known_columns(next(csv.reader([header], **_dialect(d)), []), layout.columns)
    )
    delimiter = said[1] if said is not None else next(known, ",")
    csv.field_size_limit((1 << 31) - 1)  # what a C long holds everywhere
    reader = csv.reader(io.StringIO(text), **_dialect(delimiter))
    width, start, last = None, 1, 1
    try:
        for cells in reader:
            width = len(cells) if width is None else width
            if reader.line_num > start and any(cells) and len(cells) != width:
                raise TaskDataError(_unclosed(path, start, f"runs on to line {reader.line_num}"))
            if any(cells):
                yield start, cells
            start, last = reader.line_num + 1, start
    except csv.Error as error:
        raise TaskDataError(f"{path}, line {start} is not CSV: {error}; check its quotes") from None
    if _ends_in_quotes(text.split("\n")[last - 1 :], delimiter):
        raise TaskDataError(_unclosed(path, last, "is not closed"))


def _dialect(delimiter: str) -> dict[str, Any]:
    """Blanks may stand between a delimiter and a quote."""
    return {"delimiter": delimiter, "skipinitialspace": delimiter != "\t"}


def _unclosed(path: Path, line: int, how: str) -> str:
    return (
        f"{path}, line {line} has a quote that {how}; close it, or double quotes that are of the "
        "text"
    )


def _ends_in_quotes(lines: Sequence[str], delimiter: str) -> bool:
    """Whether the last row of a file is not over when the file is."""
    try:
        rows = [f"{line}\n" for line in lines]
        for _ in csv.reader(rows, **_dialect(delimiter), strict=True):
            pass
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _json_lines(path: Path, reach: Reach) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(read_text(path, reach).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskDataError(f"{where} is not JSON: {error}; write one object a line") from None
        if not isinstance(record, dict):
            raise TaskDataError(f"{where} holds a {type(record).__name__}; write one object a line")
        records.append((number, record))
    return records


def _json(path: Path, reach: Reach) -> tuple[str, list[Record]]:
    """Records of a list of objects, below ``data`` if there is such an entry, or of lines."""
    text = read_text(path, reach)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("["):
            raise TaskDataError(f"{path} is not JSON: {error}; check the file") from None
        return "line", _json_lines(path, reach)
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    if isinstance(content, dict) and content:
        kinds = {_kind_of(value) for value in content.values()}
        keys = ", ".join(list(content)[:_MOST_KEYS])
        if kinds == {"list of objects"}:
            raise TaskDataError(
                f"{path} holds lists of objects under {keys}; write one list a file, such as "
                "train.json and test.json"
            )
        if kinds == {"object"}:
            raise TaskDataError(
                f"{path} holds objects under {keys}; write a list of objects, as pandas does by "
                'to_json(orient="records")'
            )
    if isinstance(content, dict):
        return "line", _json_lines(path, reach)  # of a single line
    if not isinstance(content, list):
        raise TaskDataError(f"{path} holds a {type(content).__name__}; write a list of objects")
    records = list(enumerate(content, 1))
    for number, record in records:
        if not isinstance(record, dict):
            raise TaskDataError(
                f"{path}, entry {number} is a {type(record).__name__}; write a list of objects"
            )
    return "entry", records


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return "object"
    is_list = isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
    return "list of objects" if is_list else "other"


def _parquet(path: Path, reach: Reach) -> list[Record]:
    try:
        with reach.open(path) as stream:
            records = pq.read_table(stream).to_pylist()
    except (pa.ArrowException, OSError) as error:
        detail = " ".join(str(error).split())
        raise TaskDataError(f"{path} cannot be read as Parquet: {detail}; check the file") from None
    return list(enumerate(records))


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


def _id_column(names: Sequence[str], taken: Collection[int | None]) -> int | None:
    """Where examples are named, if that is no column that is taken for something else."""
    places = (_index(names, name) for name in ID_COLUMNS)
    return next((place for place in places if place is not None and place not in taken), None)


def _lacking(path: Path, names: Sequence[str], layout: LocalLayout) -> str:
    if len(names) == 1 and "|" in names[0]:
        return (
            f"{path} has the only column {_short(names[0])}; part columns by commas, semicolons or "
            "tabs"
        )
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

"""Tables as files: Parquet, which holds the card as well, and CSV."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kdnas.architecture import Architecture
from kdnas.artefact import write_atomically
from kdnas.errors import (
    ArchitectureError,
    SearchSpaceError,
    SpecError,
    StoreError,
    some_of,
    unknown_name,
)
from kdnas.reach import ANYWHERE, Reach
from kdnas.search_space import AXES
from kdnas.tabular.card import trainings_of
from kdnas.tabular.table import Key, StateRow, Table, TableRow

if TYPE_CHECKING:
    import pyarrow

ENDINGS: Final = (".parquet", ".csv")
SIZES: Final = AXES[:4]
"""The axes that are numbers."""
NEEDED: Final = (*AXES, "loss", "latency_ms")
_FIGURES: Final = ("loss_output", "loss_mean", "params_millions", "teacher_ms")
OPTIONAL: Final = {
    **{"seed": 0, "schedule": 0, "step": None},
    **dict.fromkeys(_FIGURES),
}
"""Columns that may be missing, and what stands for them; a reading is the last of its schedule."""
MOST_BYTES: Final = 64 * 1024**2
"""Of a file; a row of all columns takes some 150 as CSV."""
MOST_ROWS: Final = 500_000
MOST_TEXT: Final = 1000
"""Bytes of a value."""
_CARD: Final = b"kdnas"
_AT_ONCE: Final = 10_000
"""Rows that are Python's at the same time."""
_WHOLE: Final = (*SIZES, "seed", "schedule", "step")


def packaged_tables() -> dict[str, Path]:
    """The tables that come with the program: name → file."""
    folder = Path(__file__).parent / "tables"
    return {path.stem: path for path in sorted(folder.glob("*.parquet"))}


def packaged_cards() -> dict[str, Mapping[str, Any]]:
    """Cards of the tables that come with the program, by name; their rows are not read."""
    from pyarrow import parquet

    return {
        name: _card(path, parquet.read_schema(path).metadata or {})
        for name, path in packaged_tables().items()
    }


def named_table(text: str, reach: Reach = ANYWHERE) -> Table:
    """Read a table that comes with the program by its name, or a file of one.

    Args:
        text: its name or path.
        reach: how the file is opened.

    Raises:
        RequestError: the file is out of reach.
        SpecError: it is neither, or the file holds no table, or too large a one.
    """
    packaged = packaged_tables()
    if text not in packaged and Path(text).suffix not in ENDINGS:
        raise SpecError(
            f"{text!r} is neither a .parquet or .csv file nor one of {', '.join(packaged)}"
        )
    if text in packaged:
        return read_table(packaged[text])
    return read_table(Path(text), reach)


def write_table(table: Table, path: Path) -> None:
    """Write a table; the file appears whole or not at all.

    Raises:
        SpecError: the file's ending is not known.
        StoreError: it cannot be written.
    """
    try:
        write_atomically(path, dump_table(table, path.suffix))
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({error.strerror or error}); choose another --output"
        ) from None


def dump_table(table: Table, ending: str) -> bytes:
    """Write a table as the content of a file with this ending.

    A card says of its trainings what the rows do.

    Raises:
        SpecError: the ending is not known.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    _check_ending(ending)
    columns: dict[str, list[Any]] = {name: [] for name in (*NEEDED, *OPTIONAL)}
    for row in table.rows:
        key, state = row.key, table.states[row.key.architecture]
        values = {
            **{axis: getattr(key.architecture, axis) for axis in AXES},
            **{"seed": key.seed, "schedule": key.schedule, "step": key.step},
            **{"loss": row.loss, "loss_output": row.loss_output, "loss_mean": row.loss_mean},
            "latency_ms": state.latency_ms,
            "params_millions": state.params_millions,
            "teacher_ms": table.teacher_ms,
        }
        for name, column in columns.items():
            column.append(values[name])
    whole = pa.table({name: pa.array(column, _type(name)) for name, column in columns.items()})
    out = io.BytesIO()
    if ending == ".csv":
        csv.write_csv(whole, out)
    else:
        told = {"trainings": [str(one) for one in trainings_of(table)]} if table.card else {}
        card = json.dumps({**table.card, **told}, sort_keys=True).encode()
        parquet.write_table(
            whole.replace_schema_metadata({_CARD: card}), out, compression="zstd", version="2.6"
        )
    return out.getvalue()


def read_table(path: Path, reach: Reach = ANYWHERE) -> Table:
    """Read a table of ours or of a user: the five axes, ``loss`` and ``latency_ms``, and more.

    Args:
        path: of the file.
        reach: how it is opened.

    Raises:
        RequestError: it is out of reach.
        SpecError: the file cannot be read, lacks a column or a value, or holds no table, or too
            large a one.
    """
    from kdnas.arrow_sizes import measured  # loads Arrow

    _check_ending(path.suffix)
    try:
        with reach.open(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error.strerror or error}); check it") from None
    if len(data) > MOST_BYTES:
        raise SpecError(
            f"{path} has more than the {MOST_BYTES // 1024**2} MiB of a table; leave rows out"
        )
    whole = (_from_csv if path.suffix == ".csv" else _from_parquet)(path, data)
    _check_columns(path, whole.schema)
    _check_rows(path, whole.num_rows)
    for name, column in zip(whole.column_names, whole.columns, strict=True):
        longest = max((measured(chunk)[0] for chunk in column.chunks), default=0)
        if longest > MOST_TEXT:
            raise SpecError(f"{path} has {longest} bytes in one value of {name}; check the column")
    return _table(path, whole, _card(path, whole.schema.metadata or {}))


def _check_columns(path: Path, schema: pyarrow.Schema) -> None:
    """Refuse what lacks a column, or has one that no table has or that holds no values."""
    import pyarrow as pa

    names = schema.names
    for name in NEEDED:
        if name not in names:
            raise SpecError(f"{path} has no column {name!r}; it has {some_of(names)}")
    for field in schema:
        if field.name not in NEEDED and field.name not in OPTIONAL:
            raise SpecError(f"{path}: {unknown_name('column', field.name, (*NEEDED, *OPTIONAL))}")
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not _is_plain(kind):
            raise SpecError(f"{path} holds {kind} as {field.name}; give a value a row")


def _is_plain(kind: Any) -> bool:
    """Whether it is of numbers or of texts, which are those that can be measured."""
    import pyarrow as pa

    return _is_text_column(kind) or pa.types.is_null(kind) or pa.types.is_primitive(kind)


def _is_text_column(kind: Any) -> bool:
    import pyarrow as pa

    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(check(kind) for check in checks)


def _check_rows(path: Path, count: int) -> None:
    if count > MOST_ROWS:
        raise SpecError(
            f"{path} has {count} rows, and at most {MOST_ROWS} are read; leave some out"
        )


def arrow_reader(data: bytes) -> pyarrow.BufferReader:
    """Let Arrow read a copy of its own.

    A thread of Arrow's may let go of what it reads when the program is already at its end: of an
    object of Python's it no longer can, and the process aborts.

    Args:
        data: what is to be read, at least one byte.
    """
    import pyarrow as pa

    own = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(own).write(data)
    return pa.BufferReader(own)


def _from_parquet(path: Path, data: bytes) -> pyarrow.Table:
    import pyarrow as pa
    from pyarrow import parquet

    begin = b"PAR1"
    if not data.startswith(begin):
        raise SpecError(
            f"{path} is no Parquet file: it begins with {data[: len(begin)]!r}, not {begin!r}; if "
            "it is text, let its name end in .csv"
        )
    try:
        source = arrow_reader(data)
        file = parquet.ParquetFile(source)
        _check_columns(path, file.schema_arrow)
        _check_rows(path, file.metadata.num_rows)
        texts = [field.name for field in file.schema_arrow if _is_text_column(field.type)]
        # What is written once and meant often stays so until it has been measured.
        return parquet.ParquetFile(source, read_dictionary=texts).read()
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{path} is a damaged Parquet file; write it anew") from error


def _from_csv(path: Path, data: bytes) -> pyarrow.Table:
    """Read known columns as texts: what a cell holds is judged where its row is known."""
    import pyarrow as pa
    from pyarrow import csv

    if not data.strip():
        raise SpecError(f"{path} is empty; its first row names the columns {', '.join(NEEDED)}")
    if not _is_text(data):
        raise SpecError(f"{path} is no text in UTF-8, as a CSV file has to be; save it as that")
    uneven: list[Any] = []

    def note(row: Any) -> str:
        uneven.append(row)
        return "skip"

    try:
        whole = csv.read_csv(
            arrow_reader(data),
            read_options=csv.ReadOptions(use_threads=False),  # or rows have no numbers
            parse_options=csv.ParseOptions(invalid_row_handler=note),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in (*NEEDED, *OPTIONAL)},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException as error:
        raise SpecError(
            f"{path} is no CSV file ({' '.join(str(error).split())}); check it"
        ) from None
    if uneven:
        row = uneven[0]  # the first row, with the names, is one of the numbered
        raise SpecError(
            f"row {row.number - 1} of {path} has {row.actual_columns} values for "
            f"{row.expected_columns} columns; give one for each"
        )
    return whole


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _table(path: Path, whole: pyarrow.Table, card: Mapping[str, Any]) -> Table:
    rows: dict[Key, TableRow] = {}
    states: dict[Architecture, StateRow] = {}
    numbers: dict[Key | Architecture, int] = {}  # the first row of each
    teachers: dict[float | None, int] = {}  # the first row of each
    batches = whole.to_batches(max_chunksize=_AT_ONCE)
    for number, values in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
        given = {**OPTIONAL, **values}
        try:
            sizes = {axis: _whole(given, axis) for axis in SIZES}
            architecture = Architecture(**sizes, activation=_given(given, "activation"))
            loss, latency_ms = _number(given, "loss"), _number(given, "latency_ms")
            seed, schedule = _whole(given, "seed"), _whole(given, "schedule")
            step = schedule if given["step"] is None else _whole(given, "step")
            if not (0 <= step <= schedule and seed >= 0):
                raise ValueError(
                    f"seed {seed}, step {step} of {schedule} is no reading; seeds count from 0, "
                    "and a step lies within its schedule"
                )
            told = {name: _number(given, name) for name in _FIGURES if given[name] is not None}
        except (ArchitectureError, ValueError) as error:
            raise SpecError(f"row {number} of {path}: {error}") from None
        key = Key(architecture, seed, schedule, step)
        if key in rows:
            raise SpecError(
                f"rows {numbers[key]} and {number} of {path} are both of "
                f"{_named(key, whole.column_names)}; leave one of them out"
            )
        rows[key] = TableRow(key, loss, told.get("loss_output"), told.get("loss_mean"))
        numbers[key] = number
        state = StateRow(latency_ms, told.get("params_millions"))
        first = numbers.setdefault(architecture, number)
        if states.setdefault(architecture, state) != state:
            raise SpecError(
                f"rows {first} and {number} of {path} have two latencies or sizes of "
                f"{architecture}, {states[architecture]} and {state}; keep one"
            )
        teachers.setdefault(told.get("teacher_ms"), number)
    if len(teachers) > 1 and None in teachers:
        raise SpecError(
            f"row {teachers[None]} of {path}: it has no teacher_ms, and other rows have one; fill "
            "it in, or leave the column out"
        )
    if len(teachers) > 1:
        raise SpecError(f"{path} has several teacher_ms ({sorted(map(str, teachers))}); keep one")
    try:
        table = Table(tuple(rows.values()), states, next(iter(teachers), None), card)
        _ = table.space
    except (SearchSpaceError, SpecError) as error:
        raise SpecError(f"{path}: {error}") from None
    return table


def _named(key: Key, columns: Collection[str]) -> str:
    """A reading by what a file says of it."""
    told = ", ".join(f"{name} {getattr(key, name)}" for name in Key._fields if name in columns)
    return f"{key.architecture} ({told})" if told else str(key.architecture)


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = _number(given, name)
    if value != int(value):
        raise ValueError(f"{name} is {value}; give a whole number")
    return int(value)


def _number(given: Mapping[str, Any], name: str) -> float:
    value = _given(given, name)
    try:
        number = float(value) if isinstance(value, str) and "_" not in value else value
    except ValueError:
        number = value
    if type(number) not in (int, float) or not math.isfinite(number):
        raise ValueError(f"{name} is {number!r}; give a number")
    return float(number)


def _given(given: Mapping[str, Any], name: str) -> Any:
    if given[name] is None:
        raise ValueError(f"it has no {name}; fill it in, or leave the row out")
    return given[name]


def _card(path: Path, metadata: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    if _CARD not in metadata:
        return {}
    try:
        card = json.loads(metadata[_CARD])
    except (ValueError, RecursionError):
        card = None
    if not isinstance(card, dict):
        raise SpecError(f"{path} holds a card that is no JSON object; write the table anew")
    return card


def _check_ending(ending: str) -> None:
    if ending not in ENDINGS:
        raise SpecError(unknown_name("file ending", ending, ENDINGS))


def _type(name: str) -> Any:
    import pyarrow as pa

    if name in _WHOLE:
        return pa.int32()
    return pa.string() if name == "activation" else pa.float64()

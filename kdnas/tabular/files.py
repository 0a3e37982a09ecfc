"""Tables as files: Parquet, which holds the card as well, and CSV."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kdnas.architecture import Architecture
from kdnas.artefact import write_atomically
from kdnas.errors import ArchitectureError, SearchSpaceError, SpecError, StoreError, unknown_name
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
_CARD: Final = b"kdnas"
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


def named_table(text: str) -> Table:
    """Read a table that comes with the program by its name, or a file of one.

    Raises:
        SpecError: it is neither, or the file holds no table.
    """
    packaged = packaged_tables()
    if text not in packaged and Path(text).suffix not in ENDINGS:
        raise SpecError(
            f"{text!r} is neither a .parquet or .csv file nor one of {', '.join(packaged)}"
        )
    return read_table(packaged.get(text, Path(text)))


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


def read_table(path: Path) -> Table:
    """Read a table of ours or of a user: the five axes, ``loss`` and ``latency_ms``, and more.

    Raises:
        SpecError: the file cannot be read, lacks a column or a value, or holds no table.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    _check_ending(path.suffix)
    serial = csv.ReadOptions(use_threads=False)
    only_empty = csv.ConvertOptions(null_values=[""])  # `nan` is told from what is missing
    try:
        with path.open("rb") as stream:
            whole = (
                csv.read_csv(stream, read_options=serial, convert_options=only_empty)
                if path.suffix == ".csv"
                else parquet.read_table(stream)
            )
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error.strerror or error}); check it") from None
    except pa.ArrowException as error:
        raise SpecError(f"{path} is no {path.suffix[1:]} file: {_line(error)}") from None
    names = whole.column_names
    for name in NEEDED:
        if name not in names:
            raise SpecError(f"{path} has no column {name!r}; it has {', '.join(names) or 'none'}")
    for name in names:
        if name not in NEEDED and name not in OPTIONAL:
            raise SpecError(f"{path}: {unknown_name('column', name, (*NEEDED, *OPTIONAL))}")
    return _table(path, whole, _card(path, whole.schema.metadata or {}))


def _table(path: Path, whole: pyarrow.Table, card: Mapping[str, Any]) -> Table:
    rows: list[TableRow] = []
    states: dict[Architecture, StateRow] = {}
    teachers: dict[float | None, int] = {}  # the first row of each
    for number, values in enumerate(whole.to_pylist(), 1):
        given = {**OPTIONAL, **values}
        try:
            sizes = {axis: _whole(given, axis) for axis in SIZES}
            architecture = Architecture(**sizes, activation=given["activation"])
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
        rows.append(TableRow(key, loss, told.get("loss_output"), told.get("loss_mean")))
        state = StateRow(latency_ms, told.get("params_millions"))
        if states.setdefault(architecture, state) != state:
            raise SpecError(
                f"{path} has two latencies or sizes of {architecture}: {states[architecture]} and "
                f"{state}; keep one"
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
        table = Table(tuple(rows), states, next(iter(teachers), None), card)
        _ = table.space
    except (SearchSpaceError, SpecError) as error:
        raise SpecError(f"{path}: {error}") from None
    return table


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = _number(given, name)
    if value != int(value):
        raise ValueError(f"{name} is {value}; give a whole number")
    return int(value)


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if value is None:
        raise ValueError(f"it has no {name}; fill it in, or leave the row out")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; give a number")
    return float(value)


def _card(path: Path, metadata: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    if _CARD not in metadata:
        return {}
    try:
        card = json.loads(metadata[_CARD])
    except ValueError:
        raise SpecError(f"{path} holds a card that is no JSON; write the table anew") from None
    return dict(card)


def _check_ending(ending: str) -> None:
    if ending not in ENDINGS:
        raise SpecError(unknown_name("file ending", ending, ENDINGS))


def _type(name: str) -> Any:
    import pyarrow as pa

    if name in _WHOLE:
        return pa.int32()
    return pa.string() if name == "activation" else pa.float64()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

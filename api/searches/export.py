"""All candidates of a search as a file that is written while it is sent.

Candidates are read a batch at a time, each in a transaction of its own, so that a slow reader
holds neither memory nor the database. Parquet has its table of contents at the end and is written
to a temporary file first.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from pydantic_core import to_json

from kdnas.db.engine import Database
from kdnas.db.lists.candidate_pages import FIELDS, READING, candidates_after
from kdnas.spreadsheet import CsvWriter

ExportFormat = Literal["csv", "parquet", "json"]
Rows = list[dict[str, Any]]

_BATCH, _CHUNK = 2000, 1 << 18
_WHOLE = (
    *("episode", "position", "index", "num_attempts", "num_steps"),
    *("layers", "heads", "hidden", "intermediate"),
)
_TEXTS = ("id", "search_id", "architecture", "activation", "source", "status", "error", "note")


def export_chunks(database: Database, search_id: str, kind: ExportFormat) -> Iterator[bytes]:
    """Write every candidate by episode and position, piece by piece."""
    return WRITERS[kind](_batches(database, search_id))


def _batches(database: Database, search_id: str) -> Iterator[Rows]:
    last: tuple[int, int] | None = None
    while True:
        with database.read() as session:
            rows = candidates_after(session, search_id, last, _BATCH)
        if not rows:
            return
        yield rows
        last = rows[-1]["episode"], rows[-1]["position"]


def _csv(batches: Iterator[Rows]) -> Iterator[bytes]:
    yield (",".join(FIELDS) + "\r\n").encode()
    for rows in batches:
        text = io.StringIO(newline="")
        writer = CsvWriter(text, "\r\n")
        for row in rows:
            writer.writerow([_cell(value) for value in row.values()])
        yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Times and lists as in JSON."""
    if isinstance(value, list):
        return to_json(value).decode() if value else ""
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    return value


def _json(batches: Iterator[Rows]) -> Iterator[bytes]:
    before = b"["
    for rows in batches:
        yield before + to_json(rows, inf_nan_mode="null")[1:-1]
        before = b",\n"
    yield b"[]" if before == b"[" else b"]"


def _parquet(batches: Iterator[Rows]) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    with tempfile.TemporaryFile(prefix="kdnas-export-") as file:
        with pq.ParquetWriter(file, schema) as writer:
            for rows in batches:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk


def _schema() -> Any:
    import pyarrow as pa

    reading = [(name, pa.float64()) for name in READING if name != "step"]
    types = {
        **dict.fromkeys(_WHOLE, pa.int32()),
        **dict.fromkeys(_TEXTS, pa.string()),
        **{name: pa.timestamp("us", tz="UTC") for name in FIELDS if name.endswith("_at")},
        "reused": pa.bool_(),
        "readings": pa.list_(pa.struct([("step", pa.int32()), *reading])),
    }
    return pa.schema([(name, types.get(name, pa.float64())) for name in FIELDS])


WRITERS: Final[dict[ExportFormat, Callable[[Iterator[Rows]], Iterator[bytes]]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}

MEDIA_TYPES: Final[dict[ExportFormat, str]] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}

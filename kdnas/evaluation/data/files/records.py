"""Records of files that say themselves what they hold: JSON, JSON Lines, Parquet, Arrow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kdnas.arrow_sizes import arrow_bytes, arrow_stream, measured, parquet_bytes, unfolded
from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.opening import (
    MOST_OF_A_LINE,
    MOST_TIMES,
    MOST_UNPACKED,
    read_bytes,
    read_text,
    strict_json,
    suffix_of,
)
from kdnas.evaluation.tasks.task import ARROW_FILES
from kdnas.reach import ANYWHERE, Reach

_MOST_KEYS = 5
_ROWS_A_BATCH = 8192
Record = tuple[int, Mapping[str, Any]]


def read_records(path: Path, reach: Reach = ANYWHERE) -> tuple[str, list[Record]]:
    """Read the objects of a JSON, JSON Lines, Parquet or Arrow file, by its suffix.

    Returns:
        What is counted (``line``, ``entry`` or ``row``), and each with its number.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: it cannot be read.
    """
    suffix = suffix_of(path)
    if suffix == ".json":
        return _json(path, reach)
    if suffix in ARROW_FILES:
        return "row", _arrow(path, reach)
    return "line", _json_lines(path, reach)


def _json_lines(path: Path, reach: Reach) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(read_text(path, reach).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = strict_json(line)
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
        content = strict_json(text)
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
        values = [value for value in content.values() if isinstance(value, list)]
        if len(values) == len(content) > 1 and len(set(map(len, values))) == 1 < len(values[0]):
            raise TaskDataError(
                f"{path} holds a list for each of {keys}; write a list of objects, as pandas does "
                'by to_json(orient="records")'
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


def _arrow(path: Path, reach: Reach) -> list[Record]:
    """Rows of Parquet, or of Arrow as `datasets` keeps it on a disk, with the names of classes."""
    kind = "Parquet" if suffix_of(path) == ".parquet" else "Arrow"
    try:
        content = read_bytes(path, reach)
        most = max(MOST_UNPACKED, MOST_TIMES * len(content))
        open_file = _parquet_batches if kind == "Parquet" else _arrow_batches
        unpacked, schema, batches = open_file(content)
        _refuse_far(path, unpacked, most)
        records = _rows(path, batches, most)
        if "binary" in str(schema.types):
            records = [{name: _decoded(value) for name, value in one.items()} for one in records]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise TaskDataError(f"{path} cannot be read as {kind}: {detail}; check the file") from None
    for column, names in _classes(path, schema).items():
        for record in records:
            record[column] = class_named(path, record[column], names)
    return list(enumerate(records))


def _decoded(value: Any) -> Any:
    """A value whose texts are kept as bytes."""
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


Batches = tuple[int, pa.Schema, Iterator[pa.RecordBatch]]
"""Bytes that they unpack to, columns, and rows, of which none is read yet."""


def _parquet_batches(content: bytes) -> Batches:
    """What a file of Parquet holds; of a text that comes again and again one copy is read."""
    stream = io.BytesIO(content)
    metadata = pq.read_metadata(stream)
    columns = (metadata.schema.column(place) for place in range(metadata.num_columns))
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    file = pq.ParquetFile(stream, metadata=metadata, read_dictionary=texts)
    return parquet_bytes(metadata), file.schema_arrow, file.iter_batches(_ROWS_A_BATCH)


def _arrow_batches(content: bytes) -> Batches:
    """What a stream of Arrow holds, or a file of it."""
    reader = pa.ipc.open_stream(arrow_stream(content))
    return arrow_bytes(content), reader.schema, _cut(reader)


def _cut(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS_A_BATCH):
            yield batch.slice(start, _ROWS_A_BATCH)


def _rows(path: Path, batches: Iterator[pa.RecordBatch], most: int) -> list[dict[str, Any]]:
    """Rows as objects.

    Args:
        path: of the file, for messages.
        batches: of rows.
        most: bytes that they may take.

    Raises:
        TaskDataError: they take more, or a text has no end.
    """
    records: list[dict[str, Any]] = []
    held = 0
    for batch in batches:
        for column in batch.columns:
            longest, size = measured(column)
            held += size
            if longest > MOST_OF_A_LINE:
                raise TaskDataError(
                    f"{path} has a text of more than {MOST_OF_A_LINE >> 20} MiB; check the file"
                )
        _refuse_far(path, held, most)
        columns = [unfolded(column) for column in batch.columns]
        records += pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return records


def _refuse_far(path: Path, unpacked: int, most: int) -> None:
    if unpacked > most:
        raise TaskDataError(
            f"{path} unpacks to over {MOST_TIMES} times its size, unlike a table; check the "
            "file, or write it as JSON lines if that is meant"
        )


def _classes(path: Path, schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Columns of numbers that stand for classes, or of lists of them → the names of the classes.

    `datasets` keeps them in the metadata of the files that it writes.
    """
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    import datasets

    try:
        features = datasets.Features.from_arrow_schema(schema)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TaskDataError(
            f"{path} says its columns in a way that datasets {datasets.__version__} does not know: "
            f"{error}; write it anew, or as JSON Lines"
        ) from None
    named = {column: class_names(feature) for column, feature in features.items()}
    return {column: names for column, names in named.items() if names}


def class_names(feature: Any) -> Sequence[str] | None:
    """Names of the classes of a column of `datasets`, or of one of lists; None where it has none.

    Args:
        feature: of the column, one of ``datasets.Features``.
    """
    feature = getattr(feature, "feature", feature)
    if isinstance(feature, list) and feature:  # as older versions write a list
        feature = feature[0]
    return getattr(feature, "names", None)


def class_named(where: object, value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class by its number, or those of a list; None where it is not known.

    Args:
        where: the number is, for messages.
        value: number of the class, a list of them, or None; a text stays as it is.
        names: by number.

    Raises:
        TaskDataError: there is no such class.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [class_named(where, one, names) for one in value]
    if value >= len(names):
        raise TaskDataError(
            f"{where} has the class {value}, but names for {len(names)} classes from 0 on; mend it"
        )
    return None if value < 0 else names[value]

"""Records of files that say themselves what they hold: JSON, JSON Lines, Parquet, Arrow."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.opening import read_bytes, read_text, strict_json, suffix_of
from kdnas.evaluation.tasks.task import ARROW_FILES
from kdnas.reach import ANYWHERE, Reach

_MOST_KEYS = 5
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
        stream = io.BytesIO(read_bytes(path, reach))
        table = pq.read_table(stream) if kind == "Parquet" else _arrow_table(stream)
        records = table.to_pylist()
        if "binary" in str(table.schema.types):
            records = [{name: _decoded(value) for name, value in one.items()} for one in records]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise TaskDataError(f"{path} cannot be read as {kind}: {detail}; check the file") from None
    for column, names in _classes(path, table.schema).items():
        for record in records:
            record[column] = class_named(path, record[column], names)
    return list(enumerate(records))


def _decoded(value: Any) -> Any:
    """A value whose texts are kept as bytes."""
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def _arrow_table(stream: BinaryIO) -> pa.Table:
    """A stream of Arrow, or else a file of it."""
    try:
        return pa.ipc.open_stream(stream).read_all()
    except pa.ArrowInvalid:
        stream.seek(0)
        return pa.ipc.open_file(stream).read_all()


def _classes(path: Path, schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Columns of numbers that stand for classes, or of lists of them → the names of the classes.

    `datasets` keeps them in the metadata of the files that it writes.
    """
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    import datasets

    try:
        features = datasets.Features.from_arrow_schema(schema)
    except (ValueError, KeyError, TypeError) as error:
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

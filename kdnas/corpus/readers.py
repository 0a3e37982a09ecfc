"""One reader a format: plain text, JSON Lines, Parquet, hub data sets."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kdnas.arrow_sizes import measured
from kdnas.corpus.reading import (
    JSONL_SUFFIXES,
    MOST_OF_A_TEXT,
    MOST_TIMES,
    MOST_UNPACKED,
    PARQUET_SUFFIXES,
    UNKNOWN_LANGUAGE,
    ReadingReport,
    Sample,
    kind_of,
    refuse_binary,
    text_lines,
    too_long,
    unpacks_too_far,
)
from kdnas.errors import CorpusError, some_of
from kdnas.specs.parts import CorpusSpec

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
_PARQUET_ROWS = 4096
_ROWS_AT_ONCE = 64
"""Turned into texts: a cell of a dictionary may be long, and in every row."""
_PARQUET_BYTES = 1 << 26
"""Of the rows that are read at once."""


def read_file(path: Path, spec: CorpusSpec, report: ReadingReport) -> Iterator[Sample]:
    """Yield the samples of one file, by its suffix; what is unknown is read as plain text.

    Raises:
        CorpusError: the file cannot be read as what its suffix says.
    """
    kind = kind_of(path)
    language = path.name.split(".")[0] if spec.language_per_file else UNKNOWN_LANGUAGE
    found = False
    with report.reading(path):
        if kind in PARQUET_SUFFIXES:
            samples = _read_parquet(path, spec, language, report)
        elif kind in JSONL_SUFFIXES:
            samples = _read_jsonl(path, spec, language, report)
        else:
            samples = _read_text(path, language, report)
        try:
            for sample in samples:
                if sample.text:
                    found = True
                    yield sample
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"cannot read {path}: {error}; check the file") from None
    if not found:
        report.found_empty(path)


def _counted(path: Path, report: ReadingReport) -> Iterator[str]:
    start, end = report.bytes_read, report.bytes_read + report.size(path)
    read = start
    for line in text_lines(path, report.reach):
        # Characters stand for bytes: near enough for a progress bar, and cheap.
        read += len(line) + 1
        report.bytes_read = min(read, end)
        yield line


def _read_text(path: Path, language: str, report: ReadingReport) -> Iterator[Sample]:
    refuse_binary(path, report.reach)
    lines = _counted(path, report)
    wrapped = _has_blank_lines(text_lines(path, report.reach))
    for paragraph in _paragraphs(lines, path) if wrapped else lines:
        yield Sample(report.clean(paragraph), language)


def _has_blank_lines(lines: Iterable[str]) -> bool:
    """True if a blank line separates text from text."""
    seen_text = seen_blank = False
    for line in lines:
        if line.strip():
            if seen_blank:
                return True
            seen_text = True
        else:
            seen_blank = seen_text
    return False


def _paragraphs(lines: Iterable[str], path: Path) -> Iterator[str]:
    """Join the lines between blank lines: books are hard-wrapped."""
    block: list[str] = []
    length = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append(line)
            length += len(line) + 1
            if length > MOST_OF_A_TEXT:
                raise too_long(f"{path}, the paragraph that ends behind line {number}")
        elif block:
            yield " ".join(block)
            block, length = [], 0
    if block:
        yield " ".join(block)


def _read_jsonl(
    path: Path, spec: CorpusSpec, language: str, report: ReadingReport
) -> Iterator[Sample]:
    refuse_binary(path, report.reach)
    for number, line in enumerate(_counted(path, report), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(
                f"{where} is not JSON: {error}; write one JSON value a line"
            ) from None
        if isinstance(row, str):
            yield Sample(report.clean(row), language)
        elif isinstance(row, dict):
            yield _from_row(row, spec, language, where, report)
        else:
            raise CorpusError(
                f"{where} holds a {type(row).__name__}; write an object with the key "
                f"{spec.text_column!r}, or a string"
            )


def _read_parquet(
    path: Path, spec: CorpusSpec, language: str, report: ReadingReport
) -> Iterator[Sample]:
    columns = [c for c in (spec.text_column, spec.language_column) if c]
    start, size = report.bytes_read, report.size(path)
    try:
        with report.reach.open(path) as raw:
            metadata = pq.read_metadata(raw)
            schema = metadata.schema.to_arrow_schema()
            _require(columns, schema.names, str(path))
            _refuse_others(spec, schema, str(path))
            rows, done, length = _rows_at_once(path, metadata, size), 0, 0
            # Of a text that comes again and again one copy is read.
            file = pq.ParquetFile(raw, metadata=metadata, read_dictionary=columns)
            for batch in file.iter_batches(rows, columns=columns):
                longest = max(measured(column)[0] for column in batch.columns)
                step = max(1, min(_ROWS_AT_ONCE, _PARQUET_BYTES // max(1, longest)))
                for place in range(0, batch.num_rows, step):
                    for row in batch.slice(place, step).to_pylist():
                        done += 1
                        sample = _from_row(row, spec, language, f"{path}, row {done}", report)
                        length += len(sample.text)
                        _refuse_far(path, length, size)
                        yield sample
                report.bytes_read = start + size * done // metadata.num_rows
    except (pa.ArrowException, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise CorpusError(f"{path} cannot be read as Parquet: {detail}; check the file") from None


def _refuse_others(spec: CorpusSpec, schema: pa.Schema, where: str) -> None:
    """Refuse columns of something else than texts before any is read; languages may be numbers.

    Raises:
        CorpusError: names the first.
    """
    for entry in ("text_column", "language_column"):
        column = getattr(spec, entry)
        kind = schema.field(column).type if column else pa.null()
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        known = [*_TEXTS, *([pa.types.is_integer] if entry == "language_column" else [])]
        if not any(is_kind(kind) for is_kind in known):
            raise CorpusError(
                f"{where}: column {column!r} holds {kind} instead of text; choose another {entry}"
            )


def _refuse_far(path: Path, unpacked: int, size: int) -> None:
    if unpacked > max(MOST_UNPACKED, MOST_TIMES * size):
        raise unpacks_too_far(path, unpacked)


def _rows_at_once(path: Path, metadata: pq.FileMetaData, size: int) -> int:
    """How many rows of a file are read at once.

    Raises:
        CorpusError: it unpacks to far more than text does.
    """
    groups = range(metadata.num_row_groups)
    unpacked = sum(int(metadata.row_group(n).total_byte_size) for n in groups)
    _refuse_far(path, unpacked, size)
    fit = _PARQUET_BYTES * int(metadata.num_rows) // max(1, unpacked)
    return max(1, min(_PARQUET_ROWS, fit))


def read_hub(name: str, spec: CorpusSpec, report: ReadingReport) -> Iterator[Sample]:
    """Stream a data set of the hub, or of a local folder that ``datasets`` can load.

    Raises:
        CorpusError: the hub cannot be reached, or there is no such data set, configuration, split
            or column.
    """
    import datasets

    what = f"hub:{name}" + (f" ({spec.config})" if spec.config else "")
    advice = (
        f"check name, configuration {spec.config!r}, split {spec.split!r} and the network, "
        "or download the data set and give its folder"
    )
    try:
        rows = iter(
            datasets.load_dataset(
                name, spec.config, split=spec.split, revision=spec.revision, streaming=True
            )
        )
    except Exception as error:
        raise CorpusError(f"cannot load {what}: {_first_line(error)}; {advice}") from error
    number = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:
            raise CorpusError(
                f"reading {what} failed at row {number}: {_first_line(error)}; {advice}"
            ) from error
        number += 1
        sample = _from_row(row, spec, UNKNOWN_LANGUAGE, f"{what}, row {number}", report)
        report.bytes_read += len(sample.text)
        if sample.text:
            yield sample


def _from_row(
    row: Mapping[str, Any], spec: CorpusSpec, language: str, where: str, report: ReadingReport
) -> Sample:
    """A missing value is an empty text, which the callers leave out."""
    _require([c for c in (spec.text_column, spec.language_column) if c], list(row), where)
    text = row[spec.text_column]
    if not isinstance(text, str | None):
        raise CorpusError(
            f"{where}: column {spec.text_column!r} holds a {type(text).__name__} instead of text; "
            "choose another text_column"
        )
    if text is not None and len(text) > MOST_OF_A_TEXT:
        raise too_long(where)
    if spec.language_column:
        language = str(row[spec.language_column] or UNKNOWN_LANGUAGE)
    return Sample(report.clean(text or ""), language)


def _require(columns: list[str], there: list[str], where: str) -> None:
    for column in columns:
        if column not in there:
            raise CorpusError(f"{where} has no column {column!r}; it has: {some_of(there)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

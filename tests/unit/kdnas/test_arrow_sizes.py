from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.arrow_sizes import arrow_bytes, arrow_stream, measured, parquet_bytes, unfolded


@pytest.mark.parametrize(
    ("column", "longest", "texts", "values"),
    [
        (pa.array(["ab", None, "é"]), 2, 4, 3),
        (pa.array([b"abc"], pa.binary()), 3, 3, 1),
        (pa.array(["abcd"] * 5).dictionary_encode(), 4, 20, 5),
        (pa.array([["a", "bc"], [], ["d"]]), 2, 4, 3 + 3),
        (pa.array([{"a": "xyz", "n": 1}, {"a": "x", "n": 2}]), 3, 4, 2 + 2 * 2),
        (pa.array([["a", "bc"], ["d", "e"]], pa.list_(pa.string(), 2)), 2, 5, 4 + 2),
        (pa.array([[("k", "xyz")], []], pa.map_(pa.string(), pa.string())), 3, 4, 1 + 1 + 2),
        (pa.array([b"ab", b"cd"], pa.binary(2)), 2, 4, 2),
        (pa.array([b"abc"], pa.large_binary()), 3, 3, 1),
        (pa.array([[None] * 3], pa.list_(pa.null())), 0, 0, 3 + 1),
        (pa.array([1, 2, 3]), 0, 0, 3),
        (pa.array([], pa.string()), 0, 0, 0),
    ],
)
def test_a_column_is_measured_before_it_is_unfolded(
    column: pa.Array, longest: int, texts: int, values: int
) -> None:
    assert measured(column) == (longest, texts + 64 * values)
    assert unfolded(column).to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"], pa.string_view()),
        pa.array([b"a"], pa.binary_view()),
        pa.array([[1]], pa.list_view(pa.int8())),
        pa.RunEndEncodedArray.from_arrays([3], ["abc"]),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.UnionArray.from_dense(
            pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array(["a"])]
        ),
    ],
)
def test_a_column_that_may_mean_the_same_bytes_again_and_again_is_refused(column: pa.Array) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"a column of type .* is not read; write the table"):
        measured(column)


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.float16(), pa.date32(), pa.timestamp("us"), pa.decimal128(9), pa.null()],
)
def test_a_column_of_values_of_one_width(kind: pa.DataType) -> None:
    assert measured(pa.nulls(3, kind)) == (0, 3 * 64)
    if kind != pa.null():
        assert measured(pa.nulls(3, kind).dictionary_encode()) == (0, 3 * 64)


def test_a_column_of_an_extension_is_as_long_as_what_it_is_stored_as() -> None:
    stored = pa.array(["abc", "d"])
    assert measured(pa.ExtensionArray.from_storage(pa.json_(), stored)) == measured(stored)


TABLE = pa.table({"text": ["a" * (1 << 16)] * 64, "n": [7] * 64})
COLUMNS = 64 * (1 << 16) + 4 * 65 + 8 * 64


def written(kind: str, table: pa.Table = TABLE, compression: str | None = None) -> bytes:
    """A table as a file or a stream of Arrow."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new: Any = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[kind]
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=32)
    return sink.getvalue()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_what_arrow_unpacks_to_is_told_before_it_is_unpacked(
    kind: str, compression: str | None
) -> None:
    content = written(kind, compression=compression)
    before = pa.total_allocated_bytes()
    found = arrow_bytes(content)
    assert pa.total_allocated_bytes() == before
    assert COLUMNS <= found <= COLUMNS + 4096
    assert (len(content) < COLUMNS // 10) == (compression is not None)
    assert pa.ipc.open_stream(arrow_stream(content)).read_all() == TABLE


def test_dictionaries_of_arrow_count() -> None:
    table = pa.table({"text": TABLE["text"].combine_chunks().dictionary_encode()})
    assert 1 << 16 <= arrow_bytes(written("stream", table, "zstd")) < 1 << 18


def test_what_is_no_arrow_is_refused() -> None:
    for content in (b"", b"text,label\n"):
        with pytest.raises(pa.ArrowInvalid):
            pa.ipc.open_stream(arrow_stream(content))
    with pytest.raises(OSError, match=r"[Ee]xpected"):
        arrow_bytes(written("stream")[:-5000])


SMALL = written("stream", pa.table({"text": ["a", "b"]}), "zstd")


@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_whatever_is_wrong_with_arrow_is_said_as_arrow_says_it(place: int, value: int) -> None:
    damaged = bytearray(SMALL)
    damaged[place] = value
    try:
        assert arrow_bytes(bytes(damaged)) >= 0
    except (pa.ArrowException, OSError):
        return


def test_what_parquet_unpacks_to_is_told_whatever_its_encoding() -> None:
    sink = io.BytesIO()
    lists = pa.array([[1] * 100_000] * 5)
    fixed = pa.array([b"a" * 50_000] * 5, pa.binary(50_000))
    pq.write_table(pa.table({"lists": lists, "fixed": fixed, "text": ["a"] * 5}), sink)
    content = sink.getvalue()
    assert len(content) < 60_000
    assert parquet_bytes(pq.read_metadata(sink)) == 5 * (100_000 * 8 + 50_000 + 4)

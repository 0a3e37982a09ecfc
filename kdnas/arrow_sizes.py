"""How much a column of Arrow's becomes in Python, told before it is made into that.

A column whose texts are kept once each, as a dictionary, may be a thousandth of what it unfolds to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_BYTES_A_VALUE = 64
"""What Python takes for any value, roughly."""
_PARQUET_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_FILE_MAGIC = b"ARROW1\x00\x00"
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def parquet_bytes(metadata: pq.FileMetaData) -> int:
    """Bytes of the values of a file of Parquet, however few its encodings make of them.

    A text counts as its place in a dictionary (:func:`measured` has the texts).
    """
    columns = [metadata.schema.column(place) for place in range(metadata.num_columns)]
    widths = [
        max(0, column.length)
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        else _PARQUET_WIDTHS.get(column.physical_type, 4)
        for column in columns
    ]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return sum(
        width * int(group.column(place).num_values)
        for group in groups
        for place, width in enumerate(widths)
    )


def arrow_bytes(content: bytes) -> int:
    """Bytes that the batches of a stream or file of Arrow unpack to; nothing is unpacked.

    Buffers that are packed begin with what they unpack to (Arrow columnar format, "Compression").

    Raises:
        ArrowInvalid: the content is neither.
    """
    total = 0
    for message in _messages(arrow_stream(content)):
        try:
            total += _unpacked(message)
        except (struct.error, IndexError, TypeError):
            raise pa.ArrowInvalid("a message of it is damaged") from None
    return total


def arrow_stream(content: bytes) -> pa.Buffer:
    """The stream in a file of Arrow, which is what it has in front of its table of contents."""
    buffer = pa.py_buffer(content)
    return buffer[len(_FILE_MAGIC) :] if content.startswith(_FILE_MAGIC) else buffer


def _messages(stream: pa.Buffer) -> Iterator[pa.Message]:
    reader = pa.ipc.MessageReader.open_stream(stream)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _unpacked(message: pa.Message) -> int:
    """Bytes of a batch's buffers once they are unpacked; 0 of what is no batch."""
    metadata = _Flat(message.metadata.to_pybytes())
    root = metadata.at(0)
    kind = metadata.field(root, 1, "<B")  # Message.header_type
    batch = metadata.table(root, 2) if kind in (_DICTIONARY_BATCH, _RECORD_BATCH) else None
    if batch is not None and kind == _DICTIONARY_BATCH:
        batch = metadata.table(batch, 1)  # DictionaryBatch.data
    if batch is None:
        return 0
    if metadata.table(batch, 3) is None:  # RecordBatch.compression
        return int(message.body.size)
    total = 0
    for offset, length in metadata.pairs(batch, 2):  # RecordBatch.buffers
        if length >= 8:
            (size,) = struct.unpack("<q", message.body[offset : offset + 8].to_pybytes())
            total += length if size == -1 else max(0, size)
    return total


class _Flat:
    """A message's description, as FlatBuffers lay it out: tables of places, from their ends."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def _read(self, layout: str, place: int) -> int:
        if place < 0:
            raise IndexError(place)
        value: int = struct.unpack_from(layout, self._content, place)[0]
        return value

    def at(self, place: int) -> int:
        """Where an offset leads."""
        return place + self._read("<I", place)

    def _place(self, table: int, number: int) -> int | None:
        """Where a field of a table stands; None if the table leaves it out."""
        layout = table - self._read("<i", table)
        entry = 4 + 2 * number
        if entry >= self._read("<H", layout):
            return None
        offset = self._read("<H", layout + entry)
        return table + offset if offset else None

    def field(self, table: int, number: int, layout: str) -> int:
        """A number; 0 where it is left out."""
        place = self._place(table, number)
        return 0 if place is None else self._read(layout, place)

    def table(self, table: int, number: int) -> int | None:
        """A table within a table."""
        place = self._place(table, number)
        return None if place is None else self.at(place)

    def pairs(self, table: int, number: int) -> Iterator[tuple[int, int]]:
        """A list of pairs of numbers of 64 bits."""
        start = self.table(table, number)
        if start is not None:
            for place in range(start + 4, start + 4 + 16 * self._read("<I", start), 16):
                yield self._read("<q", place), self._read("<q", place + 8)


def measured(column: pa.Array) -> tuple[int, int]:
    """Bytes of the longest text of a column, and what Python takes for all of it, roughly.

    Raises:
        ArrowInvalid: its values are of a kind whose size nobody can tell before they are made, such
            as views and runs, all of which may mean the same bytes.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        return measured(column.storage)
    if any(is_kind(column.type) for is_kind in _LISTS):
        longest, size = measured(column.flatten())
    elif pa.types.is_map(column.type):
        parts = [measured(part) for part in (column.keys, column.items)]
        longest, size = max(p[0] for p in parts), sum(p[1] for p in parts)
    elif pa.types.is_fixed_size_binary(column.type):
        longest = column.type.byte_width if len(column) else 0
        size = longest * len(column)
    elif pa.types.is_struct(column.type):
        parts = [measured(part) for part in column.flatten()]
        longest, size = max((p[0] for p in parts), default=0), sum(p[1] for p in parts)
    elif pa.types.is_dictionary(column.type) and _holds_texts(column.type.value_type):
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
        longest, size = pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
    elif _holds_texts(column.type):
        lengths = pc.binary_length(column)
        longest, size = pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
    elif _has_a_width(column.type):
        longest, size = 0, 0
    else:
        raise pa.ArrowInvalid(
            f"a column of type {column.type} is not read; write the table as Parquet"
        )
    return longest, size + _BYTES_A_VALUE * len(column)


_OF_A_WIDTH = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_null)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
)


def _holds_texts(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _TEXTS)


def _has_a_width(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_a_width(kind.value_type)
    return any(is_kind(kind) for is_kind in _OF_A_WIDTH)


def unfolded(column: pa.Array) -> pa.Array:
    """A column of its own values, which Python reads faster."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

"""How much a column of Arrow's becomes in Python, told before it is made into that.

A column whose texts are kept once each, as a dictionary, may be a thousandth of what it unfolds to.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_BYTES_A_VALUE = 64
"""What Python takes for any value, roughly."""


def measured(column: pa.Array) -> tuple[int, int]:
    """Bytes of the longest text of a column, and what Python takes for all of it, roughly."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        longest, size = measured(column.flatten())
    elif pa.types.is_struct(column.type):
        parts = [measured(part) for part in column.flatten()]
        longest, size = max((p[0] for p in parts), default=0), sum(p[1] for p in parts)
    elif pa.types.is_dictionary(column.type) and _holds_texts(column.type.value_type):
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
        longest, size = pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
    elif _holds_texts(column.type):
        lengths = pc.binary_length(column)
        longest, size = pc.max(lengths).as_py() or 0, pc.sum(lengths).as_py() or 0
    else:
        longest, size = 0, 0
    return longest, size + _BYTES_A_VALUE * len(column)


def _holds_texts(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)
    return any(is_kind(kind) for is_kind in checks)


def unfolded(column: pa.Array) -> pa.Array:
    """A column of its own values, which Python reads faster."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

from __future__ import annotations

import pyarrow as pa
import pytest

from kdnas.arrow_sizes import measured, unfolded


@pytest.mark.parametrize(
    ("column", "longest", "texts", "values"),
    [
        (pa.array(["ab", None, "é"]), 2, 4, 3),
        (pa.array([b"abc"], pa.binary()), 3, 3, 1),
        (pa.array(["abcd"] * 5).dictionary_encode(), 4, 20, 5),
        (pa.array([["a", "bc"], [], ["d"]]), 2, 4, 3 + 3),
        (pa.array([{"a": "xyz", "n": 1}, {"a": "x", "n": 2}]), 3, 4, 2 + 2 * 2),
        (pa.array([1, 2, 3]), 0, 0, 3),
        (pa.array([], pa.string()), 0, 0, 0),
    ],
)
def test_a_column_is_measured_before_it_is_unfolded(
    column: pa.Array, longest: int, texts: int, values: int
) -> None:
    assert measured(column) == (longest, texts + 64 * values)
    assert unfolded(column).to_pylist() == column.to_pylist()

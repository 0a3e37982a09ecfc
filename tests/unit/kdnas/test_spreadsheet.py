from __future__ import annotations

import io

import pytest

from kdnas.spreadsheet import CsvWriter


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=HYPERLINK(A1)", "'=HYPERLINK(A1)"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-1+cmd", "'-1+cmd"),
        ("+49", "+49"),
        ("-0.25", "-0.25"),
        ("-1e-05", "-1e-05"),
        (-3, "-3"),
        ("model = x", "model = x"),
        (None, ""),
    ],
)
def test_what_a_spreadsheet_would_take_for_a_formula_is_quoted(cell: object, written: str) -> None:
    stream = io.StringIO()
    CsvWriter(stream).writerow(["a", cell])
    assert stream.getvalue() == f"a,{written}\n"


def test_rows_end_as_is_asked_for() -> None:
    stream = io.StringIO()
    CsvWriter(stream, "\r\n").writerows([["a", "b,c"], ["=d", 1]])
    assert stream.getvalue() == 'a,"b,c"\r\n\'=d,1\r\n'

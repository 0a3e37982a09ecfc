"""Spans of time in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kdnas.cli.screens.times import age, span


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (9e5, "10 d")]
)
def test_ages(seconds: float, said: str) -> None:
    assert age(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (61, "1 min 01 s"),
        (299.6, "5 min"),
        (3600, "1 h 00 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said

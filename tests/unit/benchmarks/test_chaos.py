"""The page of what is lost when processes die, on rows that are made up."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def chaos(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("chaos")


def row(process: str, kills: int, *amiss: str, stops: int = 0) -> dict[str, Any]:
    return {
        "database": "sqlite", "process": process, "work": "search", "kills": kills,
        "stops": stops, "amiss": [*amiss], "seconds": 1.0,
    }  # fmt: skip


def test_what_was_amiss_is_counted_and_told(chaos: ModuleType) -> None:
    rows = [
        row("runner", 2, stops=1),
        row("runner", 3, "2 candidates were trained twice", "came to 1, and undisturbed to 2"),
        row("raylet", 1, "left behind: raylet"),
    ]
    text = chaos.page(rows)
    assert "| runner | 2 | 5 | 1 | 1 | 1 | 0 |" in text
    assert "| raylet | 1 | 1 | 0 | 0 | 0 | 1 |" in text
    assert "| **all** | 3 | 6 | 1 | 1 | 1 | 1 |" in text
    assert "- sqlite, runner, search: came to 1, and undisturbed to 2" in text


def test_what_was_mended_is_told_and_not_counted(chaos: ModuleType) -> None:
    text = chaos.page([row("runner", 2), {**row("runner", 3, "it hangs"), "mended": "No more."}])
    assert "| **all** | 1 | 2 | 0 | 0 | 0 | 0 |" in text
    assert "Nothing was amiss.\n\nFound on the way, mended, and tried again since:" in text
    assert "- sqlite, runner, search: it hangs. No more." in text


def test_where_nothing_is_amiss_it_says_so(chaos: ModuleType) -> None:
    assert "Nothing was amiss." in chaos.page([row("service", 1)])

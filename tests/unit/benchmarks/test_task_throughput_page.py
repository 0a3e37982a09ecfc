"""The page of the comparison with TextBrewer comes from its numbers alone."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def test_the_page_is_written_anew_as_it_was(
    load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [RESULTS / f"task_throughput.{ending}" for ending in ("json", "md")]
    shutil.copy(stored[0], tmp_path)
    monkeypatch.setattr(sys, "argv", ["page", str(tmp_path / "task_throughput")])
    load("task_throughput_page").main()
    for path in stored:
        assert (tmp_path / path.name).read_text("utf-8") == path.read_text("utf-8")

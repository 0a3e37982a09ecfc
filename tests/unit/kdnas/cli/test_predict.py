"""Where answers go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdnas.cli.predict import _write
from kdnas.evaluation.prediction.predictor import Answer
from kdnas.evaluation.tasks.examples import TextExample

ANSWERS = [Answer(TextExample("1", "good", None, None), "yes", 0.75)]


@pytest.mark.parametrize("name", ["a.txt", "A.TXT", "answers"])
def test_a_file_of_lines_has_what_would_be_printed(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    assert _write(ANSWERS, file, as_json=False) == 1
    assert file.read_text("utf-8").startswith("yes")
    assert _write(ANSWERS, file, as_json=True) == 1
    assert json.loads(file.read_text("utf-8"))["prediction"] == "yes"


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl"])
def test_other_files_are_written_as_their_end_says(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    _write(ANSWERS, file, as_json=False)
    plain = file.read_text("utf-8")
    _write(ANSWERS, file, as_json=True)
    assert file.read_text("utf-8") == plain

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.reports.card import is_student, with_scores, write_scores
from kdnas.evaluation.reports.report import Against, Cell, Report, Row

CARD = "# A student\n\nIt was distilled.\n\n## Use\n\n```python\n```\n"
FIGURES = ModelFigures(5_000_000, 20_000_000, "pytorch", 2.0, "cpu:Test", 32, 1)


def report(score: float, suite: str = "glue", note: str = "cut to 10 steps") -> Report:
    rows = (
        Row("/models/students/tiny", "measured", {"RTE": Cell(score, None, 1)}, figures=FIGURES),
        Row("/models/teacher", "measured", {"RTE": Cell(0.8, None, 1)}),
        Row("BERT", "published", {"RTE": Cell(0.7, None, 3)}, "none", "A paper"),
    )
    against = (Against(rows[0].model, rows[1].model, {"RTE": score / 0.8}),)
    return Report(suite, ("RTE",), rows, (), against, (f"RTE: {note}",))


def test_scores_stand_before_the_use_and_name_no_paths() -> None:
    text = with_scores(CARD, report(0.6))
    assert text.index("## Scores over glue") < text.index("## Use")
    assert "| this model | 60.0 |" in text
    assert "| teacher | 80.0 |" in text
    assert "| share of teacher | 75.0 % |" in text
    assert "| this model | 5.0 | 20.0 | 2.00 | PyTorch |" in text
    assert "- RTE: cut to 10 steps" in text
    assert "/models" not in text
    assert "BERT" not in text


def test_newer_scores_take_the_place_of_older_ones() -> None:
    once = with_scores(CARD, report(0.6))
    edited = once.replace("It was distilled.", "It is mine.")
    other = with_scores(edited, report(0.5, "sts"))
    again = with_scores(with_scores(other, report(0.61)), report(0.61))
    assert again.count("## Scores over glue") == 1
    assert again.count("## Scores over sts") == 1
    assert "60.0" not in again
    assert "| this model | 61.0 |" in again
    assert "It is mine." in again
    assert again.endswith("## Use\n\n```python\n```\n")


@given(st.text(max_size=200), st.text(max_size=20))
def test_whatever_a_card_says_is_kept(card: str, note: str) -> None:
    once = with_scores(card, report(0.6, note=note))
    assert with_scores(once, report(0.6, note=note)) == once
    start, end = once.index("<!-- kdnas: begin"), once.rindex("end of scores over glue -->")
    around = once[:start] + once[end + len("end of scores over glue -->") :]
    assert "".join(around.split()) == "".join(card.split())


def test_a_lonely_start_swallows_nothing() -> None:
    once = with_scores(CARD, report(0.6))
    start = "<!-- kdnas: begin of scores over glue -->"
    torn = f"{start}\nmy own words\n\n{once}"
    assert "my own words" in with_scores(torn, report(0.7))


def test_only_students_of_ours_are_written_to(tmp_path: Path) -> None:
    assert not is_student(tmp_path)
    (tmp_path / "README.md").write_text(CARD)
    assert not is_student(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    assert not is_student(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"distillation_id": "d"}))
    assert is_student(tmp_path)
    write_scores(tmp_path, report(0.6))
    write_scores(tmp_path, replace(report(0.6), notes=()))
    assert (tmp_path / "README.md").read_text().count("60.0") == 1
    assert {p.name for p in tmp_path.iterdir()} == {"README.md", "run.json"}
    with pytest.raises(OSError, match="No such file"):
        write_scores(tmp_path / "nowhere", report(0.6))

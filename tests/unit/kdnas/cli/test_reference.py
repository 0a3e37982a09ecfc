"""`kdnas reference` in all its formats."""

from __future__ import annotations

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from kdnas.cli.reference import reference
from kdnas.errors import NotFoundError, SpecError

app = typer.Typer()
app.command()(reference)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_text_has_every_table_with_its_place() -> None:
    text = run()
    titles = [line for line in text.splitlines() if ", Table " in line]
    assert len(titles) == 29
    assert "Trivedi et al. 2023, Table 4 (§4.2): all tasks" in titles
    assert "Wu et al. 2021, Table 5 (§5.5)" in text


def test_one_table_as_text() -> None:
    lines = run("--paper", "trivedi", "--table", "4").splitlines()
    header, first = lines[1].split(), lines[2].split()
    assert header[:2] == ["model", "method"]
    assert first[0] == "KDNAS_Arch1"
    assert "3,12,384,1024,gelu" in first
    assert first[-1] == "67.9"
    assert lines[-1] == "Scores are means of 3 runs."


def test_markdown() -> None:
    text = run("--paper", "wu2021", "--table", "6", "--format", "markdown")
    assert text.startswith("### Wu et al. 2021, Table 6 (§5.6): ")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| model | method | teacher | architecture | M par. | MRPC |")
    assert {row.count("|") for row in rows} == {rows[0].count("|")}
    assert rows[-1].endswith("| 87.8 | 74.0 | 93.5 | 91.7 |")


def test_csv_has_a_line_a_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--paper", "wang", "--format", "csv"))))
    (found,) = (
        row
        for row in rows
        if row["table"] == "1" and row["model"] == "DistilBERT" and row["task"] == "CoLA"
    )
    assert (found["value"], found["metric"], found["speedup"]) == ("51.3", "Matthews", "2.0")
    assert (found["teacher"], found["objective"]) == ("BERT Base", "distilbert")
    assert (found["heads"], found["deviation"]) == ("", "")


def test_json() -> None:
    rows = json.loads(run("--paper", "udagawa2023", "--table", "5", "--format", "json"))
    assert len(rows) == 17
    assert rows[0]["model"] == "6L-DistilBERT (monolingual)"
    assert rows[0]["mapping"] == "uniform_last"
    scores = {score["task"]: score for score in rows[0]["scores"]}
    assert scores["GLUE"] == {"task": "GLUE", "metric": None, "value": 79.4, "deviation": 0.5}


def test_by_task() -> None:
    rows = json.loads(run("--task", "xnli sw", "--format", "json"))
    assert {(row["paper"], row["table"]) for row in rows} == {
        ("trivedi2023", "8"),
        ("udagawa2023", "7"),
        ("wang2021", "5"),
    }


def test_wrong_requests() -> None:
    with pytest.raises(NotFoundError, match="unknown paper 'trivedy', did you mean 'trivedi2023'"):
        run("--paper", "trivedy")
    with pytest.raises(NotFoundError, match=r"no published result fits.*wang2021 table 10"):
        run("--paper", "wang", "--table", "12")
    with pytest.raises(SpecError, match=r"unknown format 'html'.*csv, json, markdown, text"):
        run("--format", "html")

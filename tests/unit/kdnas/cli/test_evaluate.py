"""Wrong requests to `kdnas evaluate`, each refused in one sentence before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kdnas.cli.evaluate import evaluate
from kdnas.errors import RequestError
from kdnas.testing.tiny_teacher import make_tiny_teacher

app = typer.Typer()
app.command()(evaluate)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("teacher", "--suite", "glu"), "unknown suite 'glu', did you mean 'glue'?"),
        (("teacher", "--suite", "glue", "--tasks", "SST3"), "unknown task 'SST3'"),
        (("teacher", "--suite", "glue", "--tasks", "xnli"), "unknown task of suite glue 'XNLI'"),
        (("nothing/here/at-all", "--suite", "glue"), "does not exist"),
        (("teacher", "--suite", "ner", "--data-dir", "."), "no data of CoNLL-2003 in"),
        (("teacher", "--suite", "glue", "--seeds", "0"), "give from 1 to 1000 seeds"),
        (("teacher", "--suite", "glue", "--output", "file"), "output folder file cannot be made"),
        (("teacher", "--suite", "glue", "--tag-column", "2"), "columns are of files of words and"),
        (("--suite", "ner", "--data-dir", "cut", "--show-data"), "line 2 has no tag"),
        (("--suite", "glue", "--data-dir", "cut", "--show-data"), "no data of CoLA in cut"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    make_tiny_teacher(tmp_path / "teacher")
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "train.conll").write_text("a O\nb\n")
    with pytest.raises(RequestError) as caught:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def sentences(folder: Path, train: str, test: str) -> None:
    folder.mkdir()
    (folder / "train.conll").write_text(train, "utf-8")
    (folder / "test.conll").write_text(test, "utf-8")


NESTED = "1\tAnna\tB-PER\tO\n2\tsaw\tO\tO\n3\tYork\tB-ORG\tB-LOC\n"


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--show-data"], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_data_are_shown_as_they_were_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sentences(tmp_path / "mine", f"{NESTED}\n{NESTED}", NESTED)
    said = shown("--suite", "ner", "--tasks", "NER", "--data-dir", "mine").splitlines()
    assert "task       NER: tagging, by f1, precision, recall" in said
    assert (
        "read       mine/train.conll: train, 2 examples; words in column 2, tags in column 3 (IOB) "
        "of 4, parted by tabs"
    ) in said
    assert "train      2 examples: PER 2, ORG 2" in said
    assert "test       1 example: PER 1, ORG 1" in said
    assert said.count("           Anna/B-PER saw/O York/B-ORG") == 3
    inner = shown("--suite", "ner", "--tasks", "NER", "--data-dir", "mine", "--tag-column", "4")
    assert "           Anna/O saw/O York/B-LOC" in inner.splitlines()


def test_data_are_shown_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text("words,stars\ngood,2\nbad,1\nfine,2\nodd,1\nso so,1\n", "utf-8")
    asked = ("--suite", "own", "--data-dir", "reviews.csv", "--text", "words", "--label", "stars")
    (task,) = json.loads(shown(*asked, "--json"))["tasks"]
    assert (task["task"], task["kind"], task["official_split"]) == (
        *("reviews", "classification"),
        False,
    )
    (file,) = task["files"]
    assert file["about"] == "text in 'words', label in 'stars'"
    train, dev = task["parts"]
    assert (train["examples"], dev["examples"]) == (4, 1)
    assert sum(train["labels"].values()) == 4
    assert len(train["first"]) == 3
    assert any("not the official split" in note for note in task["notes"])
    numbers = shown(*asked, "--kind", "regression", "--json")
    (task,) = json.loads(numbers)["tasks"]
    assert task["parts"][0]["labels"] == {"least": 1.0, "greatest": 2.0}

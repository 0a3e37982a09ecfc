"""Wrong requests to `kdnas evaluate`, each refused in one sentence before any work."""

from __future__ import annotations

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
    with pytest.raises(RequestError) as caught:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1

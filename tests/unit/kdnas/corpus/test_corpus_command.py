"""``kdnas corpus``: options reach the library, answers come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kdnas.cli.corpus import app
from kdnas.errors import CorpusError, NotFoundError
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("teacher"), words=("alpha", "beta"))


@pytest.fixture
def runner(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KDNAS_TEACHER", str(teacher))
    monkeypatch.delenv("KDNAS_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "de.jsonl"
    rows = [{"body": f"alpha beta {i} \ud800"} for i in range(9)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_build_then_show(runner: CliRunner, source: Path) -> None:
    options = ["build", "--corpus", str(source), "--text-column", "body", "--max-length", "32"]
    built = runner.invoke(app, [*options, "--language-per-file", "--json"], catch_exceptions=False)
    meta = json.loads(built.stdout)
    assert meta["num_sequences"] == 9
    assert meta["languages"] == {"de": 9}
    assert meta["max_length"] == 32
    assert "tokenised 9 samples" in built.stderr
    assert "9 bytes are not UTF-8" in built.stderr
    shown = runner.invoke(app, ["show", meta["fingerprint"]], catch_exceptions=False)
    assert meta["fingerprint"] in shown.stdout
    assert "9, 1 of them held out" in shown.stdout
    assert "0 drawn to be held out went to training" in shown.stdout


def test_near_twins_are_told(runner: CliRunner, tmp_path: Path) -> None:
    source = tmp_path / "alike.txt"
    source.write_text("\n".join(f"{'alpha beta ' * 5}{i}" for i in range(800)))
    options = ["build", "--corpus", str(source), "--max-length", "32"]
    built = runner.invoke(app, options, catch_exceptions=False)
    assert "warning: 32 of the 32 held-out samples are near twins" in built.stderr
    assert "near twins   8 drawn to be held out went to training, 32 are held out" in built.stdout


def test_second_build_says_that_there_is_nothing_to_do(runner: CliRunner, source: Path) -> None:
    options = ["build", "--corpus", str(source), "--text-column", "body", "--max-length", "32"]
    first, second = (runner.invoke(app, options, catch_exceptions=False) for _ in range(2))
    assert "tokenised before" in second.stderr
    assert first.stdout == second.stdout


def test_errors_are_the_librarys(runner: CliRunner, source: Path) -> None:
    with pytest.raises(NotFoundError, match="no corpus 'abc'"):
        runner.invoke(app, ["show", "abc"], catch_exceptions=False)
    with pytest.raises(CorpusError, match="max_length 256 is more than the 64 tokens"):
        runner.invoke(
            app, ["build", "--corpus", str(source), "--max-length", "256"], catch_exceptions=False
        )

"""The commands on students that are no Transformers."""

from __future__ import annotations

import pytest

from kdnas.testing.commands import Program
from kdnas.testing.tiny_sequence import make_tiny_sequence
from kdnas.testing.tiny_tasks import WORDS, write_sst2

ARCH = "1,2,24,48,gelu"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program.make(tmp_path_factory.mktemp("sequence"))
    make_tiny_sequence(program.folder / "student", words=WORDS)
    make_tiny_sequence(program.folder / "cnn", "gated-cnn", (), words=WORDS)
    write_sst2(program.folder / "glue")
    return program


def test_they_answer(program: Program) -> None:
    done = program.run("predict", "student", "the film was good", "--json")
    assert done.code == 0, done.err
    assert done.json["prediction"] in ("no", "yes")
    assert 0.5 <= done.json["probability"] <= 1
    number = program.run("predict", "cnn", "the film", "--pair", "the plot", "--json")
    assert isinstance(number.json["prediction"], float)


@pytest.mark.slow
def test_they_are_timed_and_exported(program: Program) -> None:
    done = program.run("benchmark-model", "student", "cnn", "--length", "8", "--json")
    assert done.code == 0, done.err
    assert len(done.json["models"]) == 6, done.json
    exported = program.run("export", "cnn", "--format", "onnx", "--sequence-length", "8", "--json")
    assert exported.code == 0, exported.err
    assert exported.json["outputs"] == ["logits"]
    assert (program.folder / "cnn-onnx" / "model.onnx").is_file()
    again = program.run("benchmark-model", "cnn-onnx", "--length", "8", "--runtime", "onnx")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "student", "--suite", "glue", "--data-dir", "glue"),
        (
            "full-distill",
            "--arch",
            "1,2,24,48,gelu",
            "--teacher",
            "student",
            "--corpus",
            "corpus.txt",
        ),
        ("search", "--teacher", "student", "--corpus", "corpus.txt"),
        ("arch", ARCH, "--teacher", "student"),
    ],
)
def test_they_neither_teach_nor_are_fine_tuned(
    program: Program, arguments: tuple[str, ...]
) -> None:
    done = program.run(*arguments)
    assert done.code == 2, done.err
    (line,) = [line for line in done.err.splitlines() if "Bi-LSTM" in line]
    assert "is a Bi-LSTM that was distilled for one task" in line
    assert "use it with kdnas predict, benchmark-model or export" in line

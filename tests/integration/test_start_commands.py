"""Starts that cannot be fitted: too little text, and teachers that are broken."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from kdnas.testing.commands import WORDS, Program

DISTIL = ("full-distill", "--arch", "1,4,48,96,gelu", "--teacher", "teacher")
FEW = "takes at least 96 tokens of training text (2 for each of the teacher's 48 channels)"
BREAK: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "not finite": (
        lambda weight: weight.fill_(float("nan")),
        "is broken: encoder.layer.0.output.LayerNorm.weight in model.safetensors holds values that "
        "are not finite",
    ),
    "constant": (
        lambda weight: weight.zero_(),
        "is broken: the states of layer 1 are the same for every token of the corpus",
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program.make(tmp_path_factory.mktemp("program"))
    lines = [" ".join(WORDS[i : i + 3]) for i in range(15)]  # of 5 tokens each
    (program.folder / "few.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (program.folder / "few.yaml").write_text(
        (program.folder / "tiny.yaml")
        .read_text()
        .replace("corpus.txt", "few.txt")
        .replace("fraction: 0.5", "fraction: 1.0")
        .replace("batch_size: 8", "batch_size: 4")
    )
    return program


def test_a_distillation_on_too_little_text_starts_warm_and_says_so(program: Program) -> None:
    arguments = ("--corpus", "few.txt", "--steps", "2", "--batch-size", "4", "--output", "few")
    done = program.run(*DISTIL, *arguments)
    assert done.code == 0, done.err
    assert FEW in done.err
    assert "students start warm" in done.err
    spec = json.loads(next((program.folder / "few").glob("**/distillation.json")).read_text())
    assert '"init": "warm"' in json.dumps(spec)


def test_a_search_on_too_little_text_starts_warm_and_says_so(program: Program) -> None:
    done = program.run("search", "--config", "few.yaml", "--json")
    assert done.code == 0, done.err
    assert FEW in done.err
    connection = sqlite3.connect(program.folder / "home" / "kdnas.db", timeout=10)
    try:
        found = connection.execute(
            "SELECT resolved, facts FROM searches JOIN jobs USING (id)"
        ).fetchall()
    finally:
        connection.close()
    ((spec, facts),) = (tuple(map(json.loads, row)) for row in found)
    assert spec["student"]["init"] == "warm"
    assert any(FEW in text for text in facts["warnings"])


@pytest.mark.parametrize("command", ["full-distill", "search"])
def test_text_that_fills_no_batch_is_refused_before_anything_is_stored(
    program: Program, command: str
) -> None:
    (program.folder / "large.yaml").write_text(
        (program.folder / "few.yaml").read_text().replace("batch_size: 4", "batch_size: 99")
    )
    arguments = {
        "full-distill": (*DISTIL[1:], "--corpus", "few.txt", "--batch-size", "99"),
        "search": ("--config", "large.yaml"),
    }[command]
    done = program.run(command, *arguments, "--name", "refused")
    assert done.code == 2, done.err
    (said,) = (line for line in done.err.splitlines() if line.startswith("error:"))
    assert "training sequences are fewer than the batch size 99; give more text, " in said
    assert ("a larger proxy fraction" in said) == (command == "search")
    kind = {"full-distill": "distillations", "search": "searches"}[command]
    shown = program.run(kind, "show", "refused")
    assert shown.code == 2
    assert "refused" in shown.err


@pytest.fixture(params=BREAK)
def broken(program: Program, request: pytest.FixtureRequest) -> str:
    """A folder of a broken teacher, and what is said of it."""
    spoil, words = BREAK[request.param]
    folder = program.folder / request.param.replace(" ", "_")
    folder.mkdir(exist_ok=True)
    for file in (program.folder / "teacher").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    (name,) = (n for n in weights if n.endswith("layer.0.output.LayerNorm.weight"))
    spoil(weights[name])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "words").write_text(words)
    return str(folder)


@pytest.mark.parametrize("command", ["full-distill", "search"])
def test_a_broken_teacher_is_one_sentence_and_exit_2(
    program: Program, broken: str, command: str
) -> None:
    arguments = {
        "full-distill": ("--arch", "1,4,48,96,gelu", "--corpus", "corpus.txt", "--steps", "2"),
        "search": ("--config", "tiny.yaml"),
    }[command]
    done = program.run(command, "--teacher", broken, *arguments)
    assert done.code == 2, done.err
    assert done.err.count("error:") == 1
    assert (Path(broken) / "words").read_text() in done.err
    assert "Traceback" not in done.err

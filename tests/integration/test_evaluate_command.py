"""`kdnas evaluate` from the outside: to the end, side by side, and killed and run again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kdnas.db.engine import Session
from kdnas.db.migrate import open_database
from kdnas.db.models import Evaluation, Grid
from kdnas.settings import Settings
from kdnas.testing.commands import WORDS, Finished, Program

pytestmark = pytest.mark.slow

EVALUATE = (
    "evaluate", "teacher", "--suite", "glue", "--tasks", "SST-2,sts-b", "--data-dir", "glue",
    "--batch-size", "8", "--device", "cpu", "--threads", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    made = Program.make(tmp_path_factory.mktemp("a folder with spaces"))
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(8))

    for part, count in (("train", 400), ("dev", 40)):
        write(
            made.folder / "glue" / "SST-2" / f"{part}.tsv",
            "sentence\tlabel",
            [
                f"{one}\t{int('river' in one or 'sea' in one)}"
                for one in (text() for _ in range(count))
            ],
        )
        write(
            made.folder / "glue" / "STS-B" / f"{part}.tsv",
            "index\tsentence1\tsentence2\tscore",
            [f"{i}\t{text()}\t{text()}\t{draw.uniform(0, 5):.3f}" for i in range(count)],
        )
    return made


def write(path: Path, header: str, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *lines]) + "\n", "utf-8")


@pytest.fixture(scope="module")
def finished(program: Program) -> Finished:
    result = program.run(*EVALUATE, "--seeds", "2", "--max-steps", "30", "--output", "r", "--json")
    assert result.code == 0, result.err
    return result


def test_it_says_what_it_took_and_what_came_out(program: Program, finished: Finished) -> None:
    assert f"model      {program.folder / 'teacher'}  (fingerprint" in finished.err
    task = "SST-2: 400 to learn from, 40 to be scored on (dev); not the official split; learning"
    assert f"{task} rate 2e-05" in finished.err
    assert "SST-2 seed 1: dev accuracy" in finished.err
    assert "note: SST-2, STS-B: training was cut to 30 steps" in finished.err
    found = finished.json
    own = found["rows"][0]
    assert set(own["scores"]) == {"SST-2", "STS-B", "GLUE (2 of 8)", "GLUE w/o CoLA (2 of 7)"}
    assert own["scores"]["SST-2"]["seeds"] == 2
    assert [(e["task"], e["seed"], e["steps"]) for e in found["evaluations"]] == [
        ("SST-2", 0, 30),
        ("SST-2", 1, 30),
        ("STS-B", 0, 30),
        ("STS-B", 1, 30),
    ]
    files = {path.name for path in (program.folder / "r").iterdir() if path.is_file()}
    assert files == {f"evaluation-glue.{suffix}" for suffix in ("md", "csv", "json", "tex")}
    report = json.loads((program.folder / "r" / "evaluation-glue.json").read_text("utf-8"))
    assert report["rows"] == found["rows"]


def test_what_was_said_lies_beside_the_report(program: Program, finished: Finished) -> None:
    place = program.folder / "r" / "predictions-glue" / "teacher"
    names = {f"{task}-seed{seed}.jsonl" for task in ("SST-2", "STS-B") for seed in (0, 1)}
    names |= {"SST-2-classes.md", "SST-2-dev-confusion.png"}
    assert {path.name for path in place.iterdir()} == names
    scored = {(e["task"], e["seed"]): e["metrics"]["dev"] for e in finished.json["evaluations"]}
    lines = [*map(json.loads, (place / "SST-2-seed1.jsonl").read_text("utf-8").splitlines())]
    assert len(lines) == 40
    assert all(line["text"] and line["gold"] in ("negative", "positive") for line in lines)
    right = sum(line["prediction"] == line["gold"] for line in lines)
    assert right / 40 == scored["SST-2", 1]["accuracy"]
    assert f"answers    {Path('r') / 'predictions-glue'}" in finished.err


@contextmanager
def stored(program: Program) -> Iterator[Session]:
    """The program's database, to be read."""
    settings = Settings.from_environment({"KDNAS_HOME": str(program.folder / "home")})
    with open_database(settings) as database, database.read() as session:
        yield session


def trials(program: Program) -> list[dict[str, Any]]:
    """Trials of the only grid, in the order in which they ended."""
    with stored(program) as session:
        return [trial for row in session.query(Grid) for trial in row.trials]


def num_succeeded(program: Program) -> int:
    with stored(program) as session:
        return session.query(Evaluation).filter_by(status="succeeded").count()


def test_a_killed_grid_keeps_its_trials_and_its_seeds_run_side_by_side(
    program: Program, finished: Finished
) -> None:
    command = (
        "evaluate", "teacher", "--suite", "glue", "--tasks", "sts-b", "--data-dir", "glue",
        "--batch-size", "32", "--device", "cpu", "--threads", "1", "--seeds", "2", "--no-latency",
        "--grid-learning-rates", "1e-4,5e-3", "--grid-epochs", "3", "--json",
    )  # fmt: skip
    killed = program.interrupt_when(lambda: bool(trials(program)), *command)
    assert killed.code == -9
    kept = trials(program)
    result = program.run(*command, "--jobs", "2")
    assert result.code == 0, result.err
    assert "learning rate and epochs from a grid of 2" in result.err
    assert "Ray" not in result.err + result.out
    after = trials(program)
    assert after[: len(kept)] == kept
    assert sorted(t["point"]["learning_rate"] for t in after) == [1e-4, 5e-3]
    best = max((t for t in after if t["ending"] == "finished"), key=lambda t: t["scores"][-1])
    for evaluation in result.json["evaluations"]:
        assert evaluation["settings"]["learning_rate"] == best["point"]["learning_rate"]
        assert evaluation["train_examples"] == 400
    rate = ("--learning-rate", str(best["point"]["learning_rate"]), "--epochs", "3")
    plain = (*command[: command.index("--grid-learning-rates")], *rate, "--json", "--jobs", "1")
    alone = program.run(*plain)
    assert [e["metrics"] for e in alone.json["evaluations"]] == [
        e["metrics"] for e in result.json["evaluations"]
    ]


def test_a_killed_evaluation_keeps_what_is_finished(program: Program, finished: Finished) -> None:
    before = num_succeeded(program)
    command = (*EVALUATE, "--seeds", "3", "--epochs", "2", "--json")
    program.interrupt_when(lambda: num_succeeded(program) > before, *command)
    result = program.run(*command)
    assert result.code == 0, result.err
    assert result.err.count("(known from before)") >= 1
    assert len(result.json["evaluations"]) == 6
    again = program.run(*command)
    assert again.err.count("(known from before)") == 6
    assert again.json["rows"] == result.json["rows"]
    shown = program.run(*command[:-1])  # without --json stdout has the tables
    assert "per cent, mean ± deviation over seeds" in shown.out
    assert "SST-2" in shown.out
    assert "per cent" not in shown.err
    assert "(known from before)" in shown.err
    assert not list((program.folder / "home" / "evaluations").glob("*/checkpoints"))

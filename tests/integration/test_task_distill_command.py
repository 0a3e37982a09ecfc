"""`kdnas task-distill` from the outside, with real work: whole, killed, and by the service."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kdnas.testing.commands import WORDS, Finished, Program
from kdnas.testing.forked import Forked

pytestmark = pytest.mark.slow

METHODS = "none,universal-kd-il"
SHORT = (
    *("--student", "first-layers:2", "--epochs", "2", "--finetune-epochs", "1"),
    *("--batch-size", "16", "--teacher-epochs", "1", "--warmup-epochs", "1"),
    *("--max-length", "16", "--threads", "1", "--dtype", "float32", "--device", "cpu"),
)
DISTIL = (
    *("task-distill", "--task", "birds", "--kind", "classification", "--data-dir", "birds"),
    *("--teacher", "teacher", "--method", METHODS, "--seeds", "2", *SHORT),
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program.make(tmp_path_factory.mktemp("a folder with spaces"))
    generator = random.Random(1)
    (program.folder / "birds").mkdir()
    for part, count in (("train", 160), ("dev", 40)):
        lines = ["text,label"]
        for _ in range(count):
            words = [generator.choice(WORDS) for _ in range(6)]
            lines.append(f"{' '.join(words)},{'bird' if 'bird' in words else 'none'}")
            words[generator.randrange(6)] = "bird"
            lines.append(f"{' '.join(words)},bird")
        (program.folder / "birds" / f"{part}.csv").write_text("\n".join(lines) + "\n")
    return program


@pytest.fixture(scope="module")
def whole(program: Program) -> Finished:
    result = program.run(*DISTIL, "--name", "whole", "--output", "students", "--json")
    assert result.code == 0, result.err
    return result


def weights(program: Program, name: str) -> dict[str, bytes]:
    """Weights of every run of a job, by its method and seed."""
    shown = program.run("task-distillations", "show", name, "--json").json
    runs = program.folder / "home" / "task-distillations" / shown["id"]
    return {
        folder.name: (folder / "model" / "model.safetensors").read_bytes()
        for folder in sorted(runs.iterdir())
    }


def stored(program: Program, query: str, *values: str) -> list[Any]:
    path = program.folder / "home" / "kdnas.db"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(query, values).fetchall()
    finally:
        connection.close()


def test_it_answers_with_scores_and_leaves_the_best_students(
    program: Program, whole: Finished
) -> None:
    found = whole.json
    assert (found["status"], found["done"], found["total"]) == ("succeeded", 4, 4)
    report = found["report"]
    assert [row["method"] for row in report["rows"]] == METHODS.split(",")
    assert all(0 <= row["mean"] <= 1 for row in report["rows"])
    assert len(found["facts"]["layers"]) == 2
    assert found["facts"]["teacher"]["tuned"]
    runs = weights(program, "whole")
    for row in report["rows"]:
        method, seed = row["method"], row["best_seed"]
        model = program.folder / "students" / method / "model.safetensors"
        assert model.read_bytes() == runs[f"{method}-seed{seed}"]
    told = program.run("predict", str(program.folder / "students" / "none"), "the bird sings")
    assert told.code == 0, told.err
    again = program.run("task-distill", "--resume", "whole")
    assert again.code == 0, again.err
    assert "universal-kd-il" in again.out


def test_killed_in_either_stage_it_goes_on_and_comes_to_the_same(
    program: Program, whole: Finished
) -> None:
    """Twice: in the first stage of a run, and in the second one of another."""
    query = (
        "select count(*) from events e join jobs j on j.id = e.job_id where j.name = 'killed' and "
        "e.type = 'task_distillation_progress' and e.payload like ?"
    )

    def seen(*words: str) -> bool:
        return bool(stored(program, query, f"%{'%'.join(words)}%")[0][0])

    killed = program.interrupt_when(
        lambda: seen('"universal-kd-il"', "stage 1"), *DISTIL, "--name", "killed"
    )
    assert killed.code < 0
    left = program.run("task-distillations", "show", "killed").out
    assert "running, but its process died" in left
    assert "kdnas task-distill --resume killed" in left
    resumed = ("task-distill", "--resume", "killed")
    killed = program.interrupt_when(lambda: seen('"seed": 1', "stage 2"), *resumed)
    assert killed.code < 0
    again = program.run(*resumed, "--json")
    assert again.code == 0, again.err
    assert again.json["done"] == 4
    assert weights(program, "killed") == weights(program, "whole")


@pytest.mark.parametrize(("action", "code"), [("cancel", 1), ("pause", 130)])
def test_one_that_is_stopped_from_elsewhere_is_not_done(
    program: Program, action: str, code: int
) -> None:
    query = "select count(*) from events e join jobs j on j.id = e.job_id where j.name = ?"
    process = program.fork(*DISTIL, "--name", action, "--seeds", "20")
    deadline = time.monotonic() + 120
    while stored(program, query, action)[0][0] < 4:
        assert time.monotonic() < deadline, process.said
        assert not process.has_ended, process.said
        time.sleep(0.1)
    asked = program.run("jobs", action, action)
    assert asked.code == 0, asked.err
    ended = process.wait(240)
    assert ended.code == code, ended.err


def test_what_cannot_be_is_refused_before_anything_is_stored(program: Program) -> None:
    (program.folder / "alike.csv").write_text("text,label\n" + "a,x\nb,x\n" * 20)
    for options, said in (
        (("--student", "first-layers:9"), "first-layers:9"),
        (("--student", "first-layers:1"), "universal-kd-cg"),
        (("--method", "universal-kd-ca"), "universal-kd-il"),
        (("--data-dir", "alike.csv"), "the only class 'x'"),
        (("--student", "nowhere"), "nowhere"),
    ):
        asked = program.run(*DISTIL, *options, "--name", "refused")
        assert asked.code == 2, (options, asked.err)
        assert said in asked.err.splitlines()[-1], asked.err
    assert stored(program, "select count(*) from jobs where name = 'refused'") == [(0,)]


def test_the_service_does_the_same(program: Program, whole: Finished) -> None:
    asked = {**whole.json["requested"], "name": "served", "output": None}
    asked["teacher"] = {**asked["teacher"], "fingerprint": None}
    with program.coordinator("--max-running", "1"):
        serve = program.fork("serve", "--no-coordinator", "--port", "0")
        try:
            url = f"{_address_of(serve)}/api/v1/task-distillations"
            request = urllib.request.Request(
                url, json.dumps(asked).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                made = json.load(answer)
            deadline = time.monotonic() + 120
            status = "queued"
            while status in {"queued", "running"} and time.monotonic() < deadline:
                time.sleep(0.5)
                with urllib.request.urlopen(f"{url}/{made['id']}") as answer:
                    found = json.load(answer)
                status = found["status"]
            assert (status, found["error"]) == ("succeeded", None)
        finally:
            serve.send_signal(15)
            serve.wait(30)
    assert weights(program, "served") == weights(program, "whole")


def _address_of(serve: Forked) -> str:
    """Where a service listens, as soon as it does."""
    deadline = time.monotonic() + 240
    while True:
        found = re.search(r"listens on (http://\S+)", serve.said)
        if found and "startup complete" in serve.said:
            return found[1]
        assert time.monotonic() < deadline, serve.said
        assert not serve.has_ended, serve.said
        time.sleep(0.1)


def test_predictions_lie_beside_the_students(program: Program, whole: Finished) -> None:
    folder: Path = program.folder / "home" / "task-distillations" / whole.json["id"]
    lines = (folder / "none-seed0" / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == whole.json["facts"]["examples"]["dev"]

"""Pipelines by real processes: over REST on both databases, and by a command that is killed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from api.http.app import create_app
from kdnas.db.engine import Database
from kdnas.db.exploration import candidates
from kdnas.db.migrate import open_database, upgrade
from kdnas.db.records import MemberRecord, TaskDistillationRecord
from kdnas.db.repository import events, jobs, pipelines, task_distillations
from kdnas.settings import Settings
from kdnas.testing.commands import Program
from kdnas.testing.tiny_tasks import write_sst2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    made = Program.make(tmp_path_factory.mktemp("pipelines"))
    write_sst2(made.folder / "glue")
    return made


def request(program: Program, **distillation: Any) -> dict[str, Any]:
    """Two candidates, one of them chosen, and half the teacher beside it."""
    search = yaml.safe_load((program.folder / "tiny.yaml").read_text("utf-8"))
    search["teacher"] = str(program.folder / "teacher")
    search["corpus"]["source"] = str(program.folder / "corpus.txt")
    search["controller"] |= {"episodes": 1, "candidates": 2}
    training = {"steps": 8, "batch_size": 8, "held_out": 16, "threads": 1}
    return {
        "search": search,
        "choose": 1,
        "distillation": {"training": training | distillation},
        "baselines": {"proportions": [[0.5, 0.5]], "random": 0},
        "evaluation": {
            "suite": "glue",
            "data_dir": str(program.folder / "glue"),
            "seeds": 1,
            "max_steps": 4,
            "batch_size": 8,
            "device": "cpu",
            "latency": None,
        },
    }


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def members_of(database: Database, pipeline_id: str) -> list[MemberRecord]:
    with database.read() as session:
        return pipelines.list_members(session, pipeline_id)


def check_whole(database: Database, pipeline_id: str) -> None:
    """Every part is there once and has succeeded."""
    members = members_of(database, pipeline_id)
    teacher, *students = [m for m in members if m.role != "variant"]  # the preset has one
    assert teacher.role == "teacher"
    assert {member.role for member in students} <= {"chosen", "baseline", "undistilled"}
    assert sum(member.role == "undistilled" for member in students) * 2 == len(students)
    for member in students:
        assert member.distillation is not None
        assert member.distillation.status == "succeeded"
        assert member.distillation.metrics["relative"] > 0
        assert (member.distillation.step == 0) == (member.role == "undistilled")
        folder = Path(member.distillation.output_path or "")
        assert (folder / "model.safetensors").is_file()
    for member in members:
        (score,) = member.evaluations
        assert score.status == "succeeded", score.error
        assert 0 <= score.metrics["main"] <= 1
        assert score.metrics["steps"] == 4
    with database.read() as session:
        record = pipelines.get_pipeline(session, pipeline_id)
        episodes = candidates.list_episodes(session, record.search_id or "")
        told = events.events_since(session, job_id=pipeline_id, limit=10_000)
    assert (record.status, record.stage, record.error) == ("succeeded", "done", None)
    assert [len(episode.candidates) for episode in episodes] == [2]
    kinds = Counter(event.type for event in told)
    assert kinds["pipeline_members"] == 1
    assert (kinds["search_created"], kinds["distillation_created"]) == (1, len(students))
    assert kinds["evaluation_created"] == len(members)


@contextmanager
def service(program: Program, url: str) -> Iterator[tuple[TestClient, Database]]:
    """The application over a database, and a coordinator beside it."""
    roots = {"KDNAS_DATA_ROOTS": str(program.folder), "KDNAS_DATABASE_URL": url}
    settings = Settings.from_environment(program.environment | roots)
    with open_database(settings) as database:
        app = create_app(settings, database, coordinator=False)
        with (
            program.coordinator("--max-running", "2", KDNAS_DATABASE_URL=url),
            TestClient(app, base_url="http://127.0.0.1:8000") as client,
        ):
            yield client, database


def follow(program: Program, url: str, name: str) -> None:
    """Ask for a pipeline over REST, and follow it to its report."""
    with service(program, url) as (client, database):
        alone = {  # others would cost seconds; the second step is as short as the fine-tunings
            "name": name,
            "baselines": {"proportions": [], "random": 0},
            "task_distill": "vanilla-kd",
        }
        answer = client.post("/api/v1/pipelines", json=request(program) | alone)
        assert answer.status_code == 202, answer.text
        path = answer.headers["location"]

        def is_over() -> bool:
            found = client.get(path).json()
            assert found["status"] not in {"failed", "paused"}, found["error"]
            return bool(found["status"] == "succeeded")

        wait_for(is_over)
        check_whole(database, answer.json()["id"])
        report = client.get(f"{path}/report").json()
        assert report["headline"]
        assert [model["role"] for model in report["models"]] == [
            *("teacher", "chosen", "task", "undistilled"),
        ]
        (step,) = report["second_steps"]
        assert step["gained"]["over"] == "examples"
        assert (Path(step["student"]) / "model.safetensors").is_file()
        shown = client.get(path).json()
        (chosen,) = [member for member in shown["members"] if member["role"] == "chosen"]
        assert step["student"] == f"{chosen['distillation']['output']}-for-SST-2"
        assert (shown["num_task_distillations"], shown["num_task_distilled"]) == (1, 1)


def test_by_rest_on_sqlite(program: Program) -> None:
    path = program.folder / "service.db"
    upgrade(f"sqlite:///{path}")
    follow(program, f"sqlite:///{path}", "small")


@pytest.mark.postgres
def test_by_rest_on_postgresql(program: Program, postgres_url: str) -> None:
    upgrade(postgres_url)
    follow(program, postgres_url, "small")


def test_launched_stopped_killed_and_resumed(program: Program) -> None:
    config = program.folder / "pipeline.yaml"
    spec = request(program, steps=60, checkpoint_every=10) | {"name": "by-hand"}
    config.write_text(yaml.safe_dump(spec), "utf-8")
    settings = Settings.from_environment(program.environment)
    with open_database(settings) as database:

        def found() -> str | None:
            with database.read() as session:
                records = pipelines.list_pipelines(session, owner_kind="cli")
            return records[0].id if records else None

        def is_distilling() -> bool:
            pipeline_id = found()
            made = members_of(database, pipeline_id) if pipeline_id else []
            return any(m.distillation is not None and m.distillation.step >= 20 for m in made)

        output = program.folder / "out"
        killed = program.interrupt_when(
            is_distilling, "launch", "--config", str(config), "--output", str(output)
        )
        assert killed.code == -signal.SIGKILL
        pipeline_id = found()
        assert pipeline_id is not None
        before = members_of(database, pipeline_id)

        def is_evaluating() -> bool:
            now = members_of(database, pipeline_id or "")
            return any(one.status == "running" for m in now for one in m.evaluations)

        stopped = program.interrupt_when(
            is_evaluating, "launch", "--resume", "by-hand", signal_number=signal.SIGINT
        )
        assert stopped.code == 130, stopped.err
        assert "go on with: kdnas launch --resume by-hand" in stopped.err
        with database.read() as session:
            assert pipelines.get_pipeline(session, pipeline_id).status == "paused"
        ended = program.run("launch", "--resume", "by-hand", "--json")
        assert ended.code == 0, ended.err
        assert ended.json["status"] == "succeeded"
        taught = next(m for m in before if m.role == "undistilled").architecture
        assert f"evaluated {taught} undistilled on " in ended.err
        assert ended.json["report"]["headline"] in (output / "report.md").read_text("utf-8")
        assert [m.id for m in members_of(database, pipeline_id)] == [m.id for m in before]
        for folder in ("by-hand-1", "by-hand-1-undistilled"):
            assert (output / "students" / folder / "config.json").is_file()
        assert "| gained by distilling |" in (output / "report.md").read_text("utf-8")
        check_whole(database, pipeline_id)
    shown = program.run("pipelines", "show", "by-hand")
    assert shown.code == 0
    assert "succeeded, stage done" in shown.out
    listed = program.run("pipelines", "list", "--json").json
    assert [(row["name"], row["num_distilled"]) for row in listed] == [("by-hand", 2)]
    again = program.run("launch", "--resume", "by-hand")
    assert again.code == 0
    assert "distilling" not in again.err


def test_what_was_chosen_is_distilled_for_the_task_killed_stopped_and_resumed(
    program: Program,
) -> None:
    config = program.folder / "second.yaml"
    step = {"method": "universal-kd-cg", "max_steps": 60, "epochs": 20, "batch_size": 8}
    spec = request(program) | {"name": "taught"}
    config.write_text(yaml.safe_dump(spec | {"task_distill": step}), "utf-8")
    settings, output = Settings.from_environment(program.environment), program.folder / "second"
    with open_database(settings) as database:

        def jobs_for_tasks() -> list[TaskDistillationRecord]:
            with database.read() as session:
                records = pipelines.list_pipelines(session, owner_kind="cli")
                ids = [record.id for record in records if record.name == "taught"]
                return task_distillations.asked_for_by(session, ids[0]) if ids else []

        def is_training() -> bool:
            with database.read() as session:
                found = [jobs.get_job(session, one.id) for one in jobs_for_tasks()]
            return any((row.phase or "").startswith("training: ") for row in found)

        killed = program.interrupt_when(
            is_training, "launch", "--config", str(config), "--output", str(output)
        )
        assert killed.code == -signal.SIGKILL, killed.err
        (before,) = jobs_for_tasks()
        with database.write() as session:
            jobs.note_phase(session, before.id, "killed")
        stopped = program.interrupt_when(
            is_training, "launch", "--resume", "taught", signal_number=signal.SIGINT
        )
        assert stopped.code == 130, stopped.err
        assert [one.status for one in jobs_for_tasks()] == ["paused"]
        ended = program.run("launch", "--resume", "taught", "--json")
        assert ended.code == 0, ended.err
        assert [(one.id, one.status) for one in jobs_for_tasks()] == [(before.id, "succeeded")]
        check_whole(database, ended.json["id"])
    (line,) = [one for one in ended.json["report"]["second_steps"] if one["job"]]
    student = Path(line["student"])
    assert student == output / "students" / "taught-1-for-SST-2"
    assert (line["task"], line["before"]["seeds"], line["after"]["seeds"]) == ("SST-2", 1, 1)
    assert line["gained"]["over"] == "examples"
    assert line["retained_before"]["value"] > 0
    text = (output / "report.md").read_text("utf-8")
    assert "## What the second step brings" in text
    assert f"| {line['name']} | SST-2 |" in text
    said = program.run("predict", str(student), "good film")
    assert said.code == 0, said.err
    assert said.out.strip()
    exported = program.folder / "second-onnx"
    onnx = ("--format", "onnx", "--output", str(exported), "--no-latency")
    made = program.run("export", str(student), *onnx)
    assert made.code == 0, made.err
    assert (exported / "model.onnx").is_file()
    measured = program.run("benchmark-model", str(student), "--runtime", "pytorch", "--length", "8")
    assert measured.code == 0, measured.err

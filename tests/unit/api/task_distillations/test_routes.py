"""Distillations for one task over REST: asked for, listed, read, their runs and their report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.http.schemas import Page
from api.jobs.files import task_run_folder
from api.task_distillations.schemas import (
    TaskDistillationDetail,
    TaskDistillationShape,
    TaskReport,
    TaskRunShape,
)
from kdnas.db.engine import Database
from kdnas.db.models import TaskDistillation
from kdnas.db.repository import grids, jobs, task_distillations
from kdnas.records import TaskRun
from kdnas.settings import Settings
from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.demo_tasks import add_task_distillation, keep_predictions, task_facts, task_run
from kdnas.testing.job_rows import make_distilled
from kdnas.testing.truth import assert_shape

PATH = "/api/v1/task-distillations"


@pytest.fixture
def glue(settings: Settings) -> Path:
    """A data root with the files of RTE, as far as their names go."""
    folder = Path(settings.data_roots[0]) / "glue"
    (folder / "RTE").mkdir(parents=True)
    for part in ("train", "dev"):
        (folder / "RTE" / f"{part}.tsv").write_text("sentence1\tsentence2\tlabel\n")
    return folder


@pytest.mark.databases("sqlite", "postgresql")
def test_they_are_asked_for_listed_and_read(
    client: TestClient, database: Database, glue: Path
) -> None:
    asked = {
        "name": "all",
        "task": "rte",
        "data_dir": str(glue),
        "methods": ["none", "universal-kd-il"],
        "seeds": 2,
    }
    answer = client.post(PATH, json=asked)
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert_shape(TaskDistillationDetail, made)
    assert answer.headers["Location"] == f"{PATH}/{made['id']}"
    assert (made["task"], made["student"], made["teacher"]) == ("RTE", "first-layers:3", "minilm")
    assert (made["methods"], made["seeds"]) == (["none", "universal-kd-il"], [0, 1])
    assert made["facts"] is None
    early = client.get(f"{PATH}/all/report").json()
    assert_shape(TaskReport, early)
    assert early["notes"] == [
        "4 of 4 runs are not done yet",
        "vanilla-kd is not among the methods, so none is compared with it",
    ]

    with database.write() as session:
        task_distillations.set_task_facts(session, made["id"], task_facts())
        for seed in (0, 1):
            for method in ("universal-kd-il", "none"):
                task_distillations.add_run(session, made["id"], task_run(method, seed))
        # One that is there is left as it is.
        task_distillations.add_run(session, made["id"], TaskRun("none", 0, error="again"))
    listed = client.get(PATH).json()
    assert_shape(Page[TaskDistillationShape], listed)
    assert [row["name"] for row in listed["items"]] == ["all"]
    for query, found in (("task=RTE", 1), ("task=rte", 0), ("student=bilstm", 0)):
        assert len(client.get(f"{PATH}?{query}").json()["items"]) == found
    assert client.get(f"{PATH}?sort=-task").status_code == 200
    one = client.get(f"{PATH}/all").json()
    assert_shape(TaskDistillationDetail, one)
    assert one["facts"]["layers"][11]["layer"] == 12
    assert one["warnings"] == ["the student begins with the teacher's lowest layers"]

    runs = client.get(f"{PATH}/all/runs").json()
    assert_shape(Page[TaskRunShape], runs)
    assert [(run["method"], run["seed"]) for run in runs["items"]] == [
        *(("none", seed) for seed in (0, 1)),
        *(("universal-kd-il", seed) for seed in (0, 1)),
    ]
    assert runs["items"][0]["attention"] == []
    assert len(runs["items"][2]["attention"][0]["weights"]) == 3
    first = client.get(f"{PATH}/all/runs?limit=3").json()
    rest = client.get(f"{PATH}/all/runs?limit=3&cursor={first['next_cursor']}").json()
    assert [*first["items"], *rest["items"]] == runs["items"]
    some = client.get(f"{PATH}/all/runs?method=none&seed=1").json()["items"]
    assert [(run["method"], run["seed"]) for run in some] == [("none", 1)]
    assert client.get(f"{PATH}/all/runs?method=nothing").status_code == 422
    assert client.get(f"{PATH}/all/runs?seed={2**63}").status_code == 422  # no database takes it
    assert client.get(f"{PATH}/nobody/runs").status_code == 404
    assert client.get(f"{PATH}/nobody/report").status_code == 404

    assert client.patch(f"{PATH}/all", json={"action": "cancel"}).json()["status"] == "cancelled"
    assert client.delete(f"{PATH}/all").status_code == 204
    assert client.get(f"{PATH}/all").status_code == 404


def test_a_student_is_named_by_its_distillation(
    client: TestClient, database: Database, glue: Path, tmp_path: Path
) -> None:
    student = tmp_path / "elsewhere"  # where a request may not look by itself
    student.mkdir()
    made = make_distilled(database, "small", student)
    make_distilled(database, "waiting", None)
    body = {"task": "rte", "data_dir": str(glue), "methods": ["takd"]}
    for name in ("small", made):
        answer = client.post(PATH, json={**body, "student": f"distillation:{name}"})
        assert answer.status_code == 202, answer.text
        assert answer.json()["student"] == str(student)
    helped = client.post(PATH, json={**body, "assistant": "distillation:small"}).json()
    assert helped["spec"]["assistant"] == str(student)
    refused = client.post(PATH, json={**body, "student": "distillation:waiting"})
    assert refused.status_code == 409
    assert "is queued and has no student yet; wait until" in refused.json()["detail"]
    for named, status in (("distillation:no", 404), (str(student), 422)):
        assert client.post(PATH, json={**body, "student": named}).status_code == status


@pytest.mark.databases("sqlite", "postgresql")
def test_one_that_has_succeeded_is_resumed_for_what_failed_alone(
    client: TestClient, database: Database
) -> None:
    add_task_distillation(database, "whole")
    refused = client.patch(f"{PATH}/whole", json={"action": "resume"})
    assert refused.status_code == 409
    made = add_task_distillation(database, "part", failed="pkd")
    for path in (f"{PATH}/part", f"/api/v1/jobs/{made}"):
        assert client.get(path).json()["num_failed"] == 1
    resumed = client.patch(f"{PATH}/part", json={"action": "resume"}).json()
    assert (resumed["status"], resumed["num_failed"]) == ("queued", 1)
    with database.write() as session:
        assert len(task_distillations.finished_runs(session, made)) == 15
        assert task_distillations.task_facts(session, made) == task_facts()
        task_distillations.set_task_facts(session, made, task_facts())
        assert ("pkd", 2) not in task_distillations.finished_runs(session, made)
        assert len(task_distillations.finished_runs(session, made)) == 14
    assert client.get(f"{PATH}/part").json()["num_failed"] == 0
    with database.read() as session:
        assert jobs.get_job(session, made, TaskDistillation).progress_mark(session) == 14


def test_the_report_compares_methods_and_has_published_rows(
    client: TestClient, database: Database, settings: Settings
) -> None:
    made = add_task_distillation(database, "whole", failed="pkd")
    with database.read() as session:
        runs = task_distillations.task_runs(session, made)
    for run in runs:
        if run.error is None and run.method != "none":  # of none they lie elsewhere
            keep_predictions(task_run_folder(settings, made, run.method, run.seed), run)
    best = task_run_folder(settings, made, "universal-kd-il", 0)
    report = client.get(f"{PATH}/whole/report").json()
    assert_shape(TaskReport, report)
    rows = {row["method"]: row for row in report["rows"]}
    assert list(rows) == report_order(client)
    row = rows["universal-kd-il"]
    mains = [run.main or 0.0 for run in runs if run.method == "universal-kd-il"]
    assert row["mean"] == pytest.approx(sum(mains) / 3)
    assert row["low"] < row["mean"] < row["high"]
    assert row["over"] == "seeds"
    assert row["retained"] == pytest.approx(row["mean"] / 0.682)
    held_out = {run.seed: run.held_out for run in runs if run.method == "universal-kd-il"}
    assert row["best_seed"] == max(held_out, key=lambda seed: held_out[seed] or 0.0)
    assert row["student"] is None
    compared = row["against"]
    base = sum(run.main or 0.0 for run in runs if run.method == "vanilla-kd") / 3
    assert compared["difference"] == pytest.approx(row["mean"] - base, abs=0.004)
    assert compared["low"] <= compared["difference"] <= compared["high"]
    assert (compared["examples"], compared["metric"]) == (277, "accuracy")
    assert (rows["none"]["against"], rows["vanilla-kd"]["against"]) == (None, None)
    assert (rows["pkd"]["num_succeeded"], rows["pkd"]["num_failed"]) == (2, 1)
    assert "pkd with seed 2 failed: the loss is no number at step 12" in report["notes"]
    assert (report["against"], report["teacher_score"]) == ("vanilla-kd", 0.682)

    tables = {(row["table"], row["model"], row["ours"]): row for row in report["published"]}
    assert tables["2", "BERT-4", "universal-kd-il"]["score"] == 0.679
    assert tables["4", "DistilRoBERTa", "takd"]["score"] == 0.718
    assert tables["6", "DistilRoBERTa", "universal-kd-weighted"]["score"] == 0.726
    assert tables["5", "Bi-LSTM", "none"]["split"] == "dev"
    assert {row["method"] for row in report["published"] if row["ours"] is None} == {"teacher"}
    (best / "model").mkdir()
    again = client.get(f"{PATH}/whole/report").json()["rows"]
    students = {row["method"]: row["student"] for row in again}
    assert students["universal-kd-il"] in {None, str(best / "model")}


def test_a_single_seed_has_the_interval_of_its_examples(
    client: TestClient, database: Database, settings: Settings
) -> None:
    made = add_task_distillation(database, "short", seeds=1)
    with database.read() as session:
        (run,) = (r for r in task_distillations.task_runs(session, made) if r.method == "pkd")
    keep_predictions(task_run_folder(settings, made, run.method, run.seed), run)
    report = client.get(f"{PATH}/short/report").json()
    rows = {row["method"]: row for row in report["rows"]}
    assert rows["pkd"]["low"] < rows["pkd"]["mean"] < rows["pkd"]["high"]
    assert (rows["pkd"]["over"], rows["pkd"]["deviation"]) == ("examples", None)
    assert (rows["none"]["low"], rows["none"]["over"]) == (None, None)  # its predictions are gone
    assert any(note.startswith("intervals of a single seed") for note in report["notes"])


def report_order(client: TestClient) -> list[str]:
    methods = client.get(f"{PATH}/whole").json()["methods"]
    assert isinstance(methods, list)
    return methods


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "task"),
        ({"task": "nothing"}, "unknown task 'nothing'"),
        ({"task": "mine"}, "STS-B, WNLI, XNLI; of a table of your own say which columns it has"),
        ({"task": "NER"}, "NER is of kind tagging, and students learn classifications"),
        ({"task": "RTE", "methods": ["magic"]}, "methods"),
        ({"task": "RTE", "methods": ["none", "none"]}, "give each once"),
        ({"task": "RTE", "data_dir": "/etc"}, "data_dir '/etc' is outside KDNAS_DATA_ROOTS"),
        ({"task": "RTE", "output": "/etc/student"}, "output '/etc/student' is outside"),
        ({"task": "RTE", "teacher": "/etc"}, "teacher.ref '/etc' is outside"),
        ({"task": "RTE", "student": "/etc"}, "student '/etc' is outside"),
        ({"task": "RTE", "assistant": "/etc"}, "assistant '/etc' is outside"),
        ({"task": "RTE", "student": "STUDENTS/a"}, "students/a' does not exist; check the path"),
        ({"task": "RTE", "assistant": "STUDENTS/a"}, "does not exist"),
        ({"task": "RTE", "teacher": "STUDENTS/a"}, "does not exist"),
        (
            {"task": "RTE", "data_dir": "GLUE", "methods": ["universal-kd-ca"]},
            "student 'first-layers:3': universal-kd-ca is for students that are no Transformers",
        ),
        (
            {"task": "RTE", "data_dir": "GLUE", "student": "bilstm"},
            "student 'bilstm': universal-kd-il is for students that are Transformers",
        ),
        (
            {"task": "RTE", "data_dir": "GLUE", "student": "first-layers:1", "methods": ["pkd"]},
            "pkd teaches the inner layers of a student, and it has none",
        ),
        ({"task": "CoLA", "data_dir": "GLUE"}, "CoLA"),
        ({"task": "mine", "own": {"kind": "tagging"}, "data_dir": "GLUE"}, "tagging"),
    ],
)
def test_a_wrong_request_is_refused(
    client: TestClient, settings: Settings, glue: Path, asked: dict[str, object], said: str
) -> None:
    places = {"GLUE": str(glue), "STUDENTS/a": str(settings.home / "students" / "a")}
    asked = {name: places.get(str(value), value) for name, value in asked.items()}
    answer = client.post(PATH, json=asked)
    assert answer.status_code in {400, 422}, answer.text
    assert said.lower() in answer.text.lower()
    assert client.get(PATH).json()["items"] == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seeds": [-1]}, ["seeds.0: give a whole number from 0 to 2147483647, not -1"]),
        (
            {"name": "a b"},
            [
                "name: name 'a b' has a space in it; give letters and digits of any script, and "
                "any of . _ -, at most 100 characters"
            ],
        ),
        *(
            (
                {entry: "first-layers:x"},
                [f"{entry}: student 'first-layers:x' cannot be read; write it as first-layers:4"],
            )
            for entry in ("student", "assistant")
        ),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(
    client: TestClient, asked: dict[str, object], said: list[str]
) -> None:
    errors = client.post(PATH, json={"task": "RTE", **asked}).json()["errors"]
    assert [f"{one['where']}: {one['message']}" for one in errors] == [
        f"body.{words}" for words in said
    ]


def test_folders_in_a_request_are_written_whole(
    client: TestClient, settings: Settings, glue: Path
) -> None:
    student = settings.home / "students" / "mine"
    student.mkdir(parents=True)
    (student / "config.json").write_text("{}")
    for given in (str(student), "bilstm", "3,12,384,384,gelu", "layers:1,3"):
        asked: dict[str, object] = {"task": "rte", "student": given}
        asked["data_dir"] = f"{glue}/../glue"
        asked["methods"] = ["vanilla-kd"]  # any student can learn by it
        made = client.post(PATH, json=asked)
        assert made.status_code == 202, made.text
        assert made.json()["student"] == given
        assert Path(made.json()["requested"]["data_dir"]).is_absolute()


@pytest.mark.databases("sqlite", "postgresql")
def test_the_trials_of_its_grids_are_shown(client: TestClient, database: Database) -> None:
    job_id = add_task_distillation(database, "whole")
    assert client.get(f"{PATH}/whole").json()["grids"] == []
    named = {
        "none": {"key": "task-grid-none", "points": 2},
        "pkd": {"key": "task-grid-pkd", "points": 6},
    }
    taken = TaskTrial(TaskPoint(8, 2e-5, None), "finished", 0.62, (0.6, 0.62))
    with database.write() as session:
        task_distillations.set_task_facts(session, job_id, replace(task_facts(), grids=named))
        grids.open_grid(session, "task-grid-none", model="first-layers:3 by none", task="RTE")
        for trial in (taken, TaskTrial(TaskPoint(16, 5e-1, None), "diverged", None)):
            grids.add_trial(session, "task-grid-none", trial.to_json())
        grids.choose(session, "task-grid-none", taken.to_json())
    found = client.get(f"{PATH}/whole").json()
    assert_shape(TaskDistillationDetail, found)
    shown = {
        **{"batch_size": 8, "learning_rate": 2e-5, "beta": None},
        **{"held_out": 0.62, "ending": "finished"},
    }
    diverged = {
        **{"batch_size": 16, "learning_rate": 0.5, "beta": None},
        **{"held_out": None, "ending": "diverged"},
    }
    assert found["grids"] == [
        {"method": "none", "points": 2, "trials": [shown, diverged], "chosen": shown},
        {"method": "pkd", "points": 6, "trials": [], "chosen": None},
    ]

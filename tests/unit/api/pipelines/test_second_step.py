"""The second step of a pipeline by its rows: who is asked for, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.inputs.methods import misfit
from api.pipelines.advance import advance, advance_all, begin_pipeline
from api.pipelines.run import run_stored_pipeline
from api.pipelines.schemas import PipelineDetail
from kdnas.db.engine import Database
from kdnas.db.models import TaskDistillation
from kdnas.db.records import MemberRecord, PipelineRecord, TaskDistillationRecord
from kdnas.db.repository import distillations, jobs, pipelines, searches, task_distillations
from kdnas.errors import ConflictError
from kdnas.evaluation.data.splitting import HELD_OUT_TENTH
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.testing import demo_data
from kdnas.testing.demo_tasks import task_facts, task_run
from kdnas.testing.truth import assert_shape
from kdnas.testing.walked_pipeline import end_search, pipeline_spec
from workers.task.request import task_of

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

PIPELINES = "/api/v1/pipelines"
STEP = {"method": "universal-kd-il", "epochs": 3, "batch_size": 16}
SMALL: dict[str, Any] = {"baselines": {"random": 0, "undistilled": False, "proportions": []}}
TASKS = ["SST-2", "STS-B", "RTE"]


def begun(database: Database, owner_kind: Any = "service", **parts: Any) -> PipelineRecord:
    asked = {"name": "taught", "task_distill": STEP, **SMALL} | parts
    with database.write() as session:
        record = begin_pipeline(session, pipeline_spec(**asked), owner_kind)
    return end_search(database, record)


def members_of(database: Database, pipeline_id: str) -> list[MemberRecord]:
    with database.read() as session:
        return pipelines.list_members(session, pipeline_id)


def steps_of(database: Database, pipeline_id: str) -> list[TaskDistillationRecord]:
    return [one for m in members_of(database, pipeline_id) for one in m.task_distillations]


def move_on(database: Database, pipeline_id: str) -> PipelineRecord:
    with database.write() as session:
        return advance(session, pipeline_id)


def end_students(database: Database, pipeline_id: str) -> PipelineRecord:
    for member in members_of(database, pipeline_id):
        if member.distillation is not None:
            with database.write() as session:
                made = member.distillation
                distillations.set_distillation_result(
                    session, made.id, metrics={}, output_path=f"/students/{made.name}"
                )
                jobs.set_status(session, made.id, "succeeded")
    return move_on(database, pipeline_id)


def end_scores(database: Database, pipeline_id: str) -> PipelineRecord:
    for member in members_of(database, pipeline_id):
        for one in member.evaluations:
            with database.write() as session:
                demo_data.score(session, one.id, one.model, 0.9)
    return move_on(database, pipeline_id)


def end_scores_but(database: Database, pipeline_id: str, left: str) -> PipelineRecord:
    for member in members_of(database, pipeline_id):
        for one in member.evaluations:
            if one.id != left:
                with database.write() as session:
                    demo_data.score(session, one.id, one.model, 0.9)
    return move_on(database, pipeline_id)


def end_steps(
    database: Database,
    pipeline_id: str,
    failing: str | None = None,
    with_dev: tuple[str, ...] = (),
) -> PipelineRecord:
    """End the distillations for tasks that are queued; that of a task fails.

    Some tasks have a development part of their own to choose epochs by.
    """
    for one in steps_of(database, pipeline_id):
        with database.write() as session:
            if one.status == "queued" and one.task == failing:
                jobs.set_status(session, one.id, "failed", "the loss is no number")
            elif one.status == "queued":
                part = "the development part" if one.task in with_dev else HELD_OUT_TENTH
                facts = replace(task_facts(one.task), chosen_on=part)
                task_distillations.set_task_facts(session, one.id, facts)
                for seed in one.spec["seeds"]:
                    run = task_run("universal-kd-il", seed, task=one.task)
                    task_distillations.add_run(session, one.id, run)
                jobs.set_status(session, one.id, "succeeded")
    return move_on(database, pipeline_id)


@pytest.mark.databases("sqlite", "postgresql")
def test_what_the_search_chose_is_distilled_for_each_task(
    client: TestClient, database: Database
) -> None:
    proportions = {"proportions": [[0.5, 0.5]]}
    record = begun(database, baselines=SMALL["baselines"] | proportions)
    assert steps_of(database, record.id) == []
    end_students(database, record.id)
    members = members_of(database, record.id)
    for member in members:
        asked = [one.task for one in member.task_distillations]
        assert asked == (TASKS if member.role == "chosen" else [])
    chosen = next(member for member in members if member.role == "chosen")
    assert chosen.distillation is not None
    first = chosen.task_distillations[0]
    assert (first.name, first.owner_kind, first.status) == (
        *("taught-1-for-SST-2", "service", "queued"),
    )
    spec = TaskDistillationSpec.read(dict(first.spec), first.name)
    assert spec.student == first.student == chosen.distillation.student == "/students/taught-1"
    assert spec.output == "/students/taught-1-for-SST-2"  # beside the student itself
    assert (spec.methods, spec.seeds) == (("universal-kd-il",), (0, 1))
    assert (spec.epochs, spec.finetune_epochs, spec.batch_size) == (3, None, 16)
    with database.read() as session:
        row = jobs.get_job(session, first.id, TaskDistillation)
        assert row.parent_id == record.id
        assert row.event_root(session) == record.id
        search = jobs.get_job(session, record.search_id or "")
        assert spec.teacher.ref == search.spec["teacher"]["ref"]
        assert spec.teacher.fingerprint == search.spec["teacher"]["fingerprint"]
    scored = end_scores(database, record.id)
    assert (scored.status, scored.stage) == ("running", "evaluation")
    done = end_steps(database, record.id)
    assert (done.status, done.stage, done.error) == ("succeeded", "done", None)
    shown = client.get(f"{PIPELINES}/taught").json()
    assert_shape(PipelineDetail, shown)
    assert (shown["num_task_distillations"], shown["num_task_distilled"]) == (6, 6)
    found = shown["members"][chosen.position - 1]["task_distillations"]
    assert [one["task"] for one in found] == TASKS
    assert found[0]["method"] == "universal-kd-il"
    runs = [task_run("universal-kd-il", seed).main or 0.0 for seed in (0, 1)]
    assert found[0]["score"] == pytest.approx(sum(runs) / 2)
    assert found[0]["metric"] == "accuracy"
    listed = client.get(PIPELINES).json()["items"]
    assert listed[0]["num_task_distillations"] == 6
    again = client.get("/api/v1/task-distillations", params={"student": first.student}).json()
    assert len(again["items"]) == 3


def test_the_teacher_and_the_student_learn_as_the_evaluation_has_it(database: Database) -> None:
    plan = {
        "suite": "glue",
        "tasks": ["RTE"],
        "data_dir": "/data",
        "seeds": [3],
        "max_steps": 40,
        "learning_rate": 1e-4,
        "max_length": 64,
        "threads": 2,
        "device": "cpu",
    }
    record = begun(database, evaluation=plan, choose=1)
    end_students(database, record.id)
    (one,) = steps_of(database, record.id)
    spec = TaskDistillationSpec.read(dict(one.spec), "the step")
    assert (spec.data_dir, spec.max_length, spec.threads, spec.device) == ("/data", 64, 2, "cpu")
    assert (spec.seeds, spec.max_steps, spec.learning_rate) == ((3,), 40, None)
    assert (spec.teacher.max_steps, spec.teacher.learning_rate) == (40, 1e-4)
    assert spec.teacher.fine_tune == "always"  # as there, whatever head it has


def score_teacher(
    database: Database, pipeline_id: str, settings: dict[str, Any], tasks: set[str] | None = None
) -> PipelineRecord:
    """End the teacher's evaluations that are queued, all of them or those on some tasks."""
    (teacher,) = [one for one in members_of(database, pipeline_id) if one.role == "teacher"]
    for one in teacher.evaluations:
        if one.status == "queued" and (tasks is None or one.task in tasks):
            with database.write() as session:
                demo_data.score(session, one.id, one.model, 0.9, settings)
    return move_on(database, pipeline_id)


GRID = {"suite": "glue", "tasks": ["RTE", "SST-2"], "grid": {}, "seeds": 1, "batch_size": 24}


def test_the_teacher_learns_as_the_grid_of_the_evaluation_chose(database: Database) -> None:
    record = begun(database, choose=1, evaluation=GRID)
    end_students(database, record.id)
    assert steps_of(database, record.id) == []  # though the student is there
    score_teacher(database, record.id, {"learning_rate": 3e-4, "epochs": 7.0}, {"RTE"})
    assert steps_of(database, record.id) == []
    score_teacher(database, record.id, {"learning_rate": 2e-5, "epochs": 4.0})
    found = {
        one.task: TaskDistillationSpec.read(dict(one.spec), "the step").teacher
        for one in steps_of(database, record.id)
    }
    assert (found["RTE"].learning_rate, found["RTE"].epochs) == (3e-4, 7.0)
    assert (found["SST-2"].learning_rate, found["SST-2"].epochs) == (2e-5, 4.0)
    assert {teacher.batch_size for teacher in found.values()} == {24}


def test_a_teacher_whose_grid_has_failed_is_waited_for(
    client: TestClient, database: Database
) -> None:
    record = begun(database, choose=1, evaluation=GRID)
    end_students(database, record.id)
    with database.write() as session:
        (teacher,) = [one for one in members_of(database, record.id) if one.role == "teacher"]
        jobs.set_status(session, teacher.evaluations[0].id, "running")
        jobs.set_status(session, teacher.evaluations[0].id, "failed", "all trials diverged")
    failed = end_scores_but(database, record.id, teacher.evaluations[0].id)
    assert (failed.status, steps_of(database, record.id)) == ("failed", [])
    client.patch(f"{PIPELINES}/taught", json={"action": "resume"})
    score_teacher(database, record.id, {"learning_rate": 3e-4, "epochs": 7.0})
    assert len(steps_of(database, record.id)) == 2


@pytest.mark.parametrize("why", ["cancelled", "not asked for"])
def test_a_teacher_that_is_not_scored_learns_as_published(database: Database, why: str) -> None:
    record = begun(database, choose=1, evaluation=GRID | {"teacher": why == "cancelled"})
    if why == "cancelled":
        move_on(database, record.id)
        with database.write() as session:
            (teacher,) = [one for one in members_of(database, record.id) if one.role == "teacher"]
            for one in teacher.evaluations:
                jobs.set_status(session, one.id, "cancelled")
    end_students(database, record.id)
    for step in steps_of(database, record.id):
        spec = TaskDistillationSpec.read(dict(step.spec), "the step")
        assert (spec.teacher.learning_rate, spec.teacher.epochs) == (None, None)
    assert len(steps_of(database, record.id)) == 2


def test_both_steps_are_scored_by_what_evaluations_report(
    client: TestClient, database: Database
) -> None:
    """Of MRPC that is F1; distillations for it go by accuracy."""
    plan = {"suite": "glue", "tasks": ["MRPC"], "seeds": 2}
    record = begun(database, evaluation=plan, choose=1)
    end_students(database, record.id)
    end_scores(database, record.id)
    end_steps(database, record.id)
    step = client.get(f"{PIPELINES}/taught/report").json()["second_steps"][0]
    by_accuracy = [task_run("universal-kd-il", seed).main or 0.0 for seed in (0, 1)]
    assert step["after"]["mean"] == pytest.approx(sum(by_accuracy) / 2 + 0.1)
    assert step["taught_by"] == pytest.approx(0.682 + 0.1)


@pytest.mark.parametrize(
    ("with_dev", "said"),
    [
        ((), "nine tenths of the training examples and chooses"),
        (("SST-2",), "nine tenths of the training examples of STS-B, RTE and chooses"),
        (("SST-2", "STS-B", "RTE"), None),
    ],
)
def test_what_is_learned_from_is_told_where_a_part_is_held_out(
    with_dev: tuple[str, ...], said: str | None, client: TestClient, database: Database
) -> None:
    record = begun(database, choose=1)
    end_students(database, record.id)
    end_scores(database, record.id)
    end_steps(database, record.id, with_dev=with_dev)
    notes = client.get(f"{PIPELINES}/taught/report").json()["notes"]
    found = [note for note in notes if "nine tenths" in note]
    assert len(found) == (said is not None)
    assert all(said in note for note in found if said)


@pytest.mark.parametrize("early", [None, 2])
def test_a_teacher_that_learns_longer_than_the_evaluations_is_told_of(
    early: int | None, client: TestClient, database: Database
) -> None:
    plan = {"suite": "glue", "tasks": ["RTE"], "seeds": 1, "early_stopping": early}
    record = begun(database, evaluation=plan, choose=1)
    end_students(database, record.id)
    end_scores(database, record.id)
    end_steps(database, record.id)
    notes = client.get(f"{PIPELINES}/taught/report").json()["notes"]
    said = "The teacher that taught has learned to its last epoch, without early stopping."
    assert (said in notes) == (early is not None)


def test_a_task_of_ones_own_is_handed_on(database: Database) -> None:
    own = {"kind": "classification", "text": "words", "name": "odd / one"}
    plan = {"suite": "own", "data_dir": "/data/mine.csv", "own": own, "seeds": 1}
    record = begun(database, evaluation=plan, choose=1)
    end_students(database, record.id)
    (one,) = steps_of(database, record.id)
    spec = TaskDistillationSpec.read(dict(one.spec), "the step")
    assert spec.own is not None
    assert (spec.task, spec.own.text, spec.data_dir) == ("odd / one", "words", "/data/mine.csv")
    assert (one.name, spec.output) == ("taught-1-for-odd-one", "/students/taught-1-for-odd-one")


def test_a_table_with_the_usual_columns_is_one_of_ones_own(database: Database) -> None:
    """Also one that is called as a task of GLUE."""
    plan = {"suite": "own", "data_dir": "/data/rte.csv", "seeds": 1}
    record = begun(database, evaluation=plan, choose=1)
    end_students(database, record.id)
    (one,) = steps_of(database, record.id)
    spec = TaskDistillationSpec.read(dict(one.spec), "the step")
    assert spec.own is not None
    assert (spec.own.kind, spec.own.text, spec.own.label) == ("classification", "text", "label")
    assert task_of(spec).suite == "own"


def test_a_failure_is_told_and_tried_again(client: TestClient, database: Database) -> None:
    record = begun(database, choose=1)
    end_students(database, record.id)
    end_scores(database, record.id)
    failed = end_steps(database, record.id, failing="STS-B")
    assert (failed.status, failed.stage) == ("failed", "evaluation")
    assert failed.error is not None
    assert "1 of 3 distillations for tasks failed (taught-1-for-STS-B: the loss is no number)" in (
        failed.error
    )
    report = client.get(f"{PIPELINES}/taught/report").json()
    (failure,) = report["failures"]
    assert failure["part"].endswith(" for STS-B")
    client.patch(f"{PIPELINES}/taught", json={"action": "resume"})
    statuses = {one.task: one.status for one in steps_of(database, record.id)}
    assert statuses == {"SST-2": "succeeded", "STS-B": "queued", "RTE": "succeeded"}
    assert end_steps(database, record.id).status == "succeeded"
    assert len(steps_of(database, record.id)) == 3


@pytest.mark.parametrize(("action", "status"), [("pause", "paused"), ("cancel", "cancelled")])
def test_what_is_done_to_the_pipeline_is_done_to_them(
    client: TestClient, database: Database, action: str, status: str
) -> None:
    record = begun(database, choose=1)
    end_students(database, record.id)
    with database.write() as session:
        jobs.set_status(session, steps_of(database, record.id)[0].id, "running")
    path = f"{PIPELINES}/taught"
    changed = client.patch(path, json={"action": action}).json()
    assert changed["status"] == status
    assert {one.status for one in steps_of(database, record.id)} == {status}
    report = client.get(f"{path}/report").json()
    said = any("were cancelled" in note for note in report["notes"])
    assert said == (status == "cancelled")
    if action == "pause":
        assert client.patch(path, json={"action": "resume"}).json()["status"] == "queued"
        assert {one.status for one in steps_of(database, record.id)} == {"queued"}


def test_one_that_is_cancelled_is_left_out_and_a_deleted_pipeline_leaves_them(
    client: TestClient, database: Database
) -> None:
    record = begun(database, choose=1)
    end_students(database, record.id)
    end_scores(database, record.id)
    with database.write() as session:
        jobs.set_status(session, steps_of(database, record.id)[0].id, "cancelled")
    assert end_steps(database, record.id).status == "succeeded"
    job_id = steps_of(database, record.id)[1].id
    assert client.delete(f"{PIPELINES}/taught").status_code == 204
    assert client.get(f"/api/v1/task-distillations/{job_id}").status_code == 200


def test_the_command_line_tries_failed_runs_again(database: Database) -> None:
    record = begun(database, "cli", choose=1, evaluation={"suite": "glue", "tasks": ["RTE"]})
    end_students(database, record.id)
    end_scores(database, record.id)
    (one,) = steps_of(database, record.id)
    with database.write() as session:
        task_distillations.set_task_facts(session, one.id, task_facts())
        run = task_run("universal-kd-il", 0)
        task_distillations.add_run(session, one.id, type(run)(run.method, 0, error="too hot"))
        jobs.set_status(session, one.id, "failed", "none of the runs came to anything")
    assert move_on(database, record.id).status == "failed"
    did = []

    def for_task(part: TaskDistillationRecord) -> None:
        did.append(part.id)
        with database.write() as session:
            task_distillations.set_task_facts(session, part.id, task_facts())
            assert task_distillations.finished_runs(session, part.id) == set()
            jobs.set_status(session, part.id, "succeeded")

    doers: dict[str, Callable[[Any], object]] = {"task_distillation": for_task}
    done = run_stored_pipeline(record.id, database, doers, lambda error: None)
    assert (done.status, did) == ("succeeded", [one.id])


def test_one_whose_output_is_another_jobs_says_so_and_goes_on_after_it(
    client: TestClient, database: Database
) -> None:
    record = begun(database)
    with database.write() as session:
        spec = {"output": "/students/taught-1-for-STS-B"}
        other = searches.create_search(session, spec, name="in-the-way")
    end = partial(end_students, database, record.id)
    with pytest.raises(ConflictError, match="is to write into /students/taught-1-for-STS-B"):
        end()
    advance_all(database)
    shown = client.get("/api/v1/jobs/taught", params={"kind": "pipeline"}).json()
    assert shown["status"] == "running"
    assert shown["standing"].startswith("waiting: search 'in-the-way' (queued) is to write into")
    assert steps_of(database, record.id) == []
    with database.write() as session:
        jobs.set_status(session, other.id, "cancelled")
    advance_all(database)
    assert len(steps_of(database, record.id)) == 2 * len(TASKS)
    with database.read() as session:
        assert jobs.phase_of(session, record.id) is None


def test_who_cannot_be_taught_so_is_left_out_with_a_note(
    client: TestClient, database: Database
) -> None:
    record = begun(database, task_distill="takd", choose={"top": 3})
    members = [m for m in members_of(database, record.id) if m.architecture is not None]
    end_students(database, record.id)
    after = members_of(database, record.id)
    report = client.get(f"{PIPELINES}/taught/report").json()
    left = [m for m in members if misfit("takd", m.architecture.layers, 12)]  # type: ignore[union-attr]
    assert {m.id for m in after if m.architecture and not m.task_distillations} == {
        m.id for m in left
    }
    for member in left:
        told = f"{member.architecture} was not distilled for the tasks: takd needs"
        assert any(note.startswith(told) for note in report["notes"])


def test_long_names_are_cut(database: Database) -> None:
    record = begun(database, name="n" * 60, choose=1)
    end_students(database, record.id)
    for one in steps_of(database, record.id):
        assert len(one.name) <= 80
        assert TaskDistillationSpec.read(dict(one.spec), "the step").name == one.name

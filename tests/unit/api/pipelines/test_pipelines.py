"""Pipelines over REST, moved on from stage to stage by their rows alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from api.http.schemas import Page
from api.pipelines import advance as pipeline_advance
from api.pipelines.advance import advance, advance_all, begin_pipeline
from api.pipelines.results import PipelineReport
from api.pipelines.schemas import PipelineDetail, PipelineShape
from kdnas.db.engine import Database
from kdnas.db.records import MemberRecord, PipelineRecord
from kdnas.db.repository import (
    distillations,
    evaluations,
    events,
    jobs,
    latencies,
    pipelines,
    searches,
)
from kdnas.settings import Settings
from kdnas.testing import demo_data
from kdnas.testing.tiny_tasks import write_sst2
from kdnas.testing.truth import assert_shape
from kdnas.testing.walked_pipeline import add_pipeline, end_search, pipeline_spec

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

PIPELINES = "/api/v1/pipelines"


@pytest.fixture
def body(settings: Settings) -> dict[str, Any]:
    """A request whose data lie below a data root."""
    write_sst2(Path(settings.data_roots[0]) / "glue")
    return {
        "name": "small",
        "search": {"controller": {"episodes": 2}},
        "choose": 2,
        "evaluation": {"suite": "glue", "data_dir": f"{settings.data_roots[0]}/glue", "seeds": 2},
    }


def begun(database: Database, **parts: Any) -> PipelineRecord:
    with database.write() as session:
        return begin_pipeline(session, pipeline_spec(**parts), "service")


def members_of(database: Database, pipeline_id: str) -> list[MemberRecord]:
    with database.read() as session:
        return pipelines.list_members(session, pipeline_id)


def read(database: Database, pipeline_id: str) -> PipelineRecord:
    with database.read() as session:
        return pipelines.get_pipeline(session, pipeline_id)


def end_students(database: Database, pipeline_id: str, failing: int | None = None) -> None:
    """End all distillations, the one at a place badly, and move the pipeline on."""
    for place, member in enumerate(members_of(database, pipeline_id)):
        if member.distillation is None:
            continue
        with database.write() as session:
            made = member.distillation.id
            if place == failing:
                jobs.set_status(session, made, "failed", "out of memory")
                continue
            distillations.set_distillation_result(
                session, made, metrics={}, output_path=f"/students/{made}"
            )
            jobs.set_status(session, made, "succeeded")
    with database.write() as session:
        advance(session, pipeline_id)


def end_scores(database: Database, pipeline_id: str, failing: int | None = None) -> None:
    """End all evaluations that are queued, the one at a place badly, and move the pipeline on."""
    found = [e for m in members_of(database, pipeline_id) for e in m.evaluations]
    for place, one in enumerate(e for e in found if e.status == "queued"):
        with database.write() as session:
            if place == failing:
                jobs.set_status(session, one.id, "failed", "no data")
            else:
                evaluations.set_figures(session, one.id, {"main": 0.9})
    with database.write() as session:
        advance(session, pipeline_id)


@pytest.mark.databases("sqlite", "postgresql")
def test_asked_for_listed_changed_and_deleted(
    client: TestClient, body: dict[str, Any], database: Database
) -> None:
    answer = client.post(PIPELINES, json=body, headers={"Idempotency-Key": "one"})
    made = answer.json()
    assert answer.status_code == 202, made
    assert_shape(PipelineDetail, made)
    assert (made["status"], made["stage"], made["members"]) == ("queued", "search", [])
    assert (made["search_name"], made["search_status"]) == ("small", "queued")
    assert made["spec"]["evaluation"]["tasks"] == ["SST-2"]  # those that have data, by name
    assert client.get(answer.headers["location"]).json() == made
    again = client.post(PIPELINES, json=body, headers={"Idempotency-Key": "one"})
    assert again.json() == made
    twin = client.post(PIPELINES, json=body)
    assert twin.status_code == 409
    assert "already a pipeline named 'small'" in twin.json()["detail"]
    page = client.get(PIPELINES, params={"status": "queued", "q": "SMA"}).json()
    assert_shape(Page[PipelineShape], page)
    assert [row["id"] for row in page["items"]] == [made["id"]]
    path = f"{PIPELINES}/small"
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        changed = client.patch(path, json={"action": action}).json()
        assert (changed["status"], changed["search_status"]) == (status, status)
    refused = client.patch(path, json={"action": "resume"})
    assert refused.status_code == 409
    assert "start a new pipeline" in refused.json()["detail"]
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get(f"/api/v1/searches/{made['search_id']}").status_code == 200
    gone = client.post(PIPELINES, json=body, headers={"Idempotency-Key": "one"})
    assert gone.status_code == 409


@pytest.mark.parametrize(
    ("part", "status", "words"),
    [
        ({"evaluation": {"suite": "glu"}}, 422, "did you mean 'glue'"),
        ({"evaluation": {"suite": "glue", "tasks": ["sst"]}}, 422, "SST-2"),
        ({"evaluation": {"suite": "glue", "data_dir": "/etc"}}, 422, "evaluation.data_dir"),
        ({"choose": {"top": 1, "latency_budgets_ms": [2]}}, 422, "exactly one"),
        ({"search": {"teacher": "/etc"}}, 422, "teacher.ref"),
        ({"search": {"controller": {"strategy": "my:Class"}}}, 422, "KDNAS_ALLOW_CUSTOM_CODE"),
        ({"search": {"space": {"axes": {"layers": [0]}}}}, 422, "whole numbers from 1 to"),
        ({"distillation": {"output": "/somewhere"}}, 422, "output '/somewhere'"),
        ({"distillation": {"training": {"address": "ray://else"}}}, 422, "training.address"),
        ({"distillation": {"training": {"steps": 0}}}, 422, "steps 0 distils nothing"),
        ({"distillation": {"architecture": "3,12,384,384,gelu"}}, 422, "unknown key"),
        ({"task_distill": "universal-kd-li"}, 422, "task_distill.method"),
        ({"task_distill": "universal-kd-ca"}, 422, "it is universal-kd-il: take that"),
    ],
)
def test_what_is_wrong_is_refused_at_once(
    client: TestClient, body: dict[str, Any], part: dict[str, Any], status: int, words: str
) -> None:
    answer = client.post(PIPELINES, json=body | part)
    assert answer.status_code == status
    assert words.lower() in answer.text.lower()
    assert client.get(PIPELINES).json()["items"] == []
    assert client.get("/api/v1/searches").json()["items"] == []


def test_a_taken_name_is_told_at_the_place_that_gave_it(
    client: TestClient, body: dict[str, Any]
) -> None:
    assert client.post(PIPELINES, json=body).status_code == 202  # its search has its name
    within = body | {"name": "other", "search": {**body["search"], "name": "small"}}
    for sent, where in ((body, "body.name"), (within, "body.search.name")):
        answer = client.post(PIPELINES, json=sent)
        assert answer.status_code == 409
        assert [error["where"] for error in answer.json()["errors"]] == [where]


@pytest.mark.databases("sqlite", "postgresql")
def test_from_the_search_to_the_end(database: Database) -> None:
    record = begun(database, name="whole", baselines={"variants": [{"int8": True}]})
    for _ in range(2):  # nothing to do while the search waits
        advance_all(database)
    assert read(database, record.id).status == "queued"
    record = end_search(database, record)
    assert (record.status, record.stage) == ("running", "distillation")
    members = members_of(database, record.id)
    assert [m.role for m in members] == [
        *("teacher", "variant", "chosen", "chosen", "baseline", "baseline", "random"),
        *["undistilled"] * 5,
    ]
    advance_all(database)  # the teacher needs no student
    teacher, int8, *students = members_of(database, record.id)
    assert [(e.task, e.seed, e.model) for e in teacher.evaluations][:2] == [
        ("SST-2", 0, "bert-base-uncased"),
        ("SST-2", 1, "bert-base-uncased"),
    ]
    assert int8.evaluations[0].model == "bert-base-uncased (int8)"
    assert int8.evaluations[0].requested["int8"] is True
    asked = students[0].distillation
    assert asked is not None
    assert (asked.name, asked.owner_kind, asked.status) == ("whole-1", "service", "queued")
    assert asked.spec["teacher"]["ref"] == "bert-base-uncased"
    assert students[2].figures.latency_ms is not None or students[2].figures.params_millions
    end_students(database, record.id)
    scored = members_of(database, record.id)
    assert all(len(member.evaluations) == 6 for member in scored)
    assert scored[2].evaluations[0].model.startswith("/students/")
    assert scored[2].evaluations[0].distillation_id == asked.id
    end_scores(database, record.id)
    done = read(database, record.id)
    assert (done.status, done.stage, done.error) == ("succeeded", "done", None)
    assert done.finished_at is not None
    with database.read() as session:
        told = events.events_since(session, job_id=record.id, limit=10_000)
    stages = [e.payload["stage"] for e in told if e.type == "pipeline_stage"]
    assert stages == ["distillation", "evaluation", "done"]
    assert {"search_created", "distillation_created"} <= {e.type for e in told}
    assert {"search_status", "distillation_status", "evaluation_status"} <= {e.type for e in told}


def test_a_failure_leaves_the_others_and_is_tried_again(
    client: TestClient, database: Database
) -> None:
    baselines = {"random": 0, "undistilled": False}
    record = end_search(database, begun(database, name="partly", baselines=baselines))
    end_students(database, record.id, failing=1)
    end_scores(database, record.id, failing=2)
    failed = read(database, record.id)
    assert (failed.status, failed.stage) == ("failed", "distillation")
    assert failed.error is not None
    assert "1 of 4 distillations failed (partly-1: out of memory)" in failed.error
    assert "1 of 24 evaluations failed (STS-B with seed 0" in failed.error
    assert "resume the pipeline" in failed.error
    kept = [e.status for m in members_of(database, record.id) for e in m.evaluations]
    assert kept.count("succeeded") == 23
    resumed = client.patch(f"{PIPELINES}/partly", json={"action": "resume"}).json()
    assert (resumed["status"], resumed["error"]) == ("queued", None)
    members = members_of(database, record.id)
    assert [m.distillation.status for m in members[1:3] if m.distillation] == [
        *("queued", "succeeded")
    ]
    end_students(database, record.id)
    end_scores(database, record.id)
    assert read(database, record.id).status == "succeeded"
    assert [len(m.evaluations) for m in members_of(database, record.id)] == [6] * 5


@pytest.mark.parametrize(
    ("status", "words"),
    [("failed", "search 'lone' failed: no GPU; resume"), ("cancelled", "start a new pipeline")],
)
def test_a_search_that_does_not_end_well(database: Database, status: Any, words: str) -> None:
    record = begun(database, name="lone")
    with database.write() as session:
        jobs.set_status(session, record.search_id or "", status, "no GPU")
    advance_all(database)
    ended = read(database, record.id)
    assert ended.status == "failed"
    assert words in str(ended.error)


def test_a_search_that_is_deleted_meanwhile(database: Database) -> None:
    record = begun(database)
    with database.write() as session:
        jobs.delete_job(session, record.search_id or "")
    advance_all(database)
    assert "was deleted" in str(read(database, record.id).error)


def test_a_budget_under_which_nothing_is(database: Database) -> None:
    record = begun(database, choose={"latency_budgets_ms": [0.001]})
    ended = end_search(database, record)
    assert (ended.status, ended.stage) == ("failed", "search")
    assert "within 0.001 ms; the fastest takes" in str(ended.error)
    assert members_of(database, record.id) == []


def test_paused_parts_rest_and_go_on(database: Database) -> None:
    record = begun(database)
    with database.write() as session:
        jobs.set_status(session, record.search_id or "", "paused")
    advance_all(database)
    assert read(database, record.id).status == "paused"
    with database.write() as session:
        jobs.set_status(session, record.search_id or "", "queued")
    advance_all(database)
    assert read(database, record.id).status == "running"


def test_students_are_made_undistilled_from_the_same_request(database: Database) -> None:
    training = {"steps": 40, "seed": 3, "batch_size": 8}
    record = begun(
        database,
        name="start",
        distillation={"training": training, "student": "random", "output": "/models"},
        choose=1,
        baselines={"random": 0, "proportions": []},
    )
    _, student, start = members_of(database, end_search(database, record).id)
    assert (student.role, start.role) == ("chosen", "undistilled")
    assert student.architecture == start.architecture
    assert student.distillation is not None
    assert start.distillation is not None
    assert (student.distillation.name, start.distillation.name) == (
        "start-1",
        "start-1-undistilled",
    )
    own, other = dict(student.distillation.spec), dict(start.distillation.spec)
    assert (own["training"]["steps"], other["training"]["steps"]) == (40, 0)
    assert (own.pop("output"), other.pop("output")) == (
        *("/models/start-1", "/models/start-1-undistilled"),
    )
    del own["name"], other["name"]
    assert own | {"training": {**own["training"], "steps": 0}} == other


def test_a_pipeline_with_undistilled_students_is_paused_fails_and_goes_on(
    client: TestClient, database: Database
) -> None:
    record = end_search(database, begun(database, name="rests", choose=1))
    path = f"{PIPELINES}/rests"
    paused = client.patch(path, json={"action": "pause"}).json()
    assert paused["status"] == "paused"
    states = {m["distillation"]["status"] for m in paused["members"] if m["architecture"]}
    assert states == {"paused"}
    assert client.patch(path, json={"action": "resume"}).json()["status"] == "queued"
    members = members_of(database, record.id)
    place = next(i for i, member in enumerate(members) if member.role == "undistilled")
    end_students(database, record.id, failing=place)
    report = client.get(f"{path}/report").json()
    name = f"{members[place].architecture} undistilled"
    assert report["failures"][0]["part"] == f"distillation of {name}"
    end_scores(database, record.id)
    failed = read(database, record.id)
    assert failed.status == "failed"
    assert "1 of 8 distillations failed (rests-1-undistilled: out of memory)" in str(failed.error)
    shown = client.get(path).json()
    assert (shown["num_students"], shown["num_distilled"]) == (4, 4)  # the starts are none
    client.patch(path, json={"action": "resume"})
    end_students(database, record.id)
    end_scores(database, record.id)
    assert read(database, record.id).status == "succeeded"
    after = members_of(database, record.id)
    assert [m.id for m in after] == [m.id for m in members]
    assert all(len(member.evaluations) == 6 for member in after)


def test_a_pipeline_from_before_there_were_undistilled_students_goes_on(
    client: TestClient, database: Database
) -> None:
    record = begun(database, name="old", baselines={"random": 0, "undistilled": False})
    end_search(database, record)
    stored = dict(read(database, record.id).spec)
    baselines = {key: v for key, v in stored["baselines"].items() if key != "undistilled"}
    with database.write() as session:
        jobs.resolve(session, record.id, stored | {"baselines": baselines})
    end_students(database, record.id)
    found = client.get(f"{PIPELINES}/old").json()
    assert (found["status"], found["stage"]) == ("running", "evaluation")
    assert "undistilled" not in {member["role"] for member in found["members"]}
    report = client.get(f"{PIPELINES}/old/report").json()
    assert "undistilled" not in report["setup"]["Compared with"]
    assert {model["gained"] for model in report["models"]} == {None}
    end_scores(database, record.id)
    assert read(database, record.id).status == "succeeded"


def test_no_cut_smaller_than_the_one_beside_the_pick_is_as_slow(
    client: TestClient, database: Database
) -> None:
    with database.write() as session:
        latencies.save_latency_table(session, demo_data.latency_table())
    add_pipeline(database, "cuts", baselines={"smallest_cuts": True})
    report = client.get(f"{PIPELINES}/cuts/report").json()
    cuts = {m["kept_layers"]: m["latency_ms"] for m in report["models"] if m["role"] == "variant"}
    depths = {
        kept: demo_data.latency_ms(replace(demo_data.TEACHER, layers=kept)) for kept in range(1, 12)
    }
    students = [m for m in report["models"] if m["role"] in ("chosen", "baseline", "random")]
    wanted = {
        min(kept for kept, ms in depths.items() if ms >= student["latency_ms"])
        for student in students
    }
    assert cuts == pytest.approx({kept: depths[kept] for kept in wanted})
    (finding,) = [line for line in report["findings"] if "smallest scored cut" in line]
    assert "undistilled teacher bert-base-uncased (" in finding
    assert "the smallest cut of the teacher that is not faster" in report["setup"]["Compared with"]


def test_without_a_score_undistilled_nothing_is_put_down_to_distillation(
    client: TestClient, database: Database
) -> None:
    add_pipeline(database, "plain", baselines={"undistilled": False})
    report = client.get(f"{PIPELINES}/plain/report").json()
    name = report["picks"][0]["name"]
    assert ": it reaches " in report["headline"]
    assert "retains" not in report["headline"]
    unknown = f"It is not known whether {name} owes any of its score to distillation: it has no"
    assert unknown in report["headline"]


def test_a_student_that_has_not_learned_is_scored_with_a_note(
    client: TestClient, database: Database
) -> None:
    pipeline = add_pipeline(database, "ruined")
    students = [m for m in members_of(database, pipeline) if m.distillation is not None]
    start = next(m for m in students if m.role == "undistilled")
    with database.write() as session:
        for member in (students[0], start):  # who starts so was to learn nothing
            assert member.distillation is not None
            distillations.set_distillation_result(
                session, member.distillation.id, metrics={"relative": 1.1, "output": 1.02}
            )
    report = client.get(f"{PIPELINES}/ruined/report").json()
    (note,) = [note for note in report["notes"] if "has not learned" in note]
    rate = pipeline_spec().distillation.training.learning_rate
    assert note == (
        f"{students[0].architecture} has not learned: its held-out output loss is 1.02, that of a "
        f"student that ignores its input is 1; a smaller training.learning_rate than {rate:g} or "
        "more steps may help."
    )
    assert report["status"] == "succeeded"


@pytest.mark.databases("sqlite", "postgresql")
def test_names_that_are_taken(database: Database) -> None:
    with database.write() as session:
        searches.create_search(session, {}, name="twice")
    record = begun(database, name="twice")
    with database.read() as session:
        assert searches.get_search(session, record.search_id or "").name != "twice"
    with database.write() as session:
        distillations.create_distillation(
            session,
            {},
            pipeline_spec().distillation_of("3,12,288,384,gelu", pipeline_spec().search).arch,
            name="twice-1",
        )
    record = end_search(database, record)
    names = [m.distillation.name for m in members_of(database, record.id) if m.distillation]
    assert names[0] == "twice-1.2"


@pytest.mark.databases("sqlite", "postgresql")
def test_two_at_once_add_nothing_twice(database: Database) -> None:
    record = begun(database)
    with ThreadPoolExecutor(4) as pool:
        end_search(database, record)

        def in_turns(act: Callable[[], object]) -> None:
            list(pool.map(lambda _: act(), range(4)))

        in_turns(lambda: advance_all(database))
        before = members_of(database, record.id)
        end_students(database, record.id)
        in_turns(lambda: advance_all(database))
    after = members_of(database, record.id)
    assert [m.id for m in before] == [m.id for m in after]
    assert all(len(member.evaluations) == 6 for member in after)


def test_a_stored_request_that_cannot_be_read_fails_alone(database: Database) -> None:
    record = begun(database, name="odd")
    other = begun(database, name="even")
    with database.write() as session:
        jobs.resolve(session, record.id, {"unknown": 1})
        for one in (record, other):
            jobs.set_status(session, one.search_id or "", "failed", "why")
    advance_all(database)
    assert "unknown" in str(read(database, record.id).error)
    assert "why" in str(read(database, other.id).error)


def test_a_pipeline_that_stumbles_holds_up_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = begun(database, name="first"), begun(database, name="second")
    for one in (first, second):
        with database.write() as session:
            jobs.set_status(session, one.search_id or "", "running")
    whole = pipeline_advance.advance

    def stumbling(session: Any, pipeline_id: str) -> PipelineRecord:
        if pipeline_id == first.id:
            raise RuntimeError("a bug")
        return whole(session, pipeline_id)

    monkeypatch.setattr(pipeline_advance, "advance", stumbling)
    advance_all(database)
    assert read(database, first.id).status == "queued"
    assert read(database, second.id).status == "running"


def test_the_made_up_pipelines_are_as_real_ones(client: TestClient, database: Database) -> None:
    add_pipeline(database, "over")
    add_pipeline(database, "under-way", distilled=1, choose={"latency_budgets_ratio": [0.5, 0.2]})
    for name, status in (("over", "succeeded"), ("under-way", "running")):
        found = client.get(f"{PIPELINES}/{name}").json()
        assert_shape(PipelineDetail, found)
        assert found["status"] == status
    assert found["num_distilled"] == 1
    assert found["num_evaluated"] == found["num_evaluations"] > 0


@pytest.mark.databases("sqlite", "postgresql")
def test_the_report_comes_in_all_formats(client: TestClient, database: Database) -> None:
    pipeline = add_pipeline(database, "reported")
    path = f"{PIPELINES}/{pipeline}/report"
    report = client.get(path).json()
    assert TypeAdapter(PipelineReport).validate_python(report).name == "reported"
    assert report["headline"].startswith("Take ")
    text = client.get(path, params={"format": "md"})
    assert text.headers["content-type"].startswith("text/markdown")
    assert report["headline"] in text.text
    lines = client.get(path, params={"format": "csv"}).text.splitlines()
    assert lines[0].startswith("pipeline,model,role,taken,")
    table = client.get(path, params={"format": "tex"}).text
    assert table.startswith("\\begin{tabular}{lrrrrrrrrrr}")
    assert client.get(path, params={"format": "docx"}).status_code == 422
    assert client.get(f"{PIPELINES}/nothing/report").status_code == 404

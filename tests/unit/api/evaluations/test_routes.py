"""Evaluations over REST: asked for, listed, changed, and put together as a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.evaluations.schemas import (
    ClassTables,
    EvaluatedModels,
    EvaluationDetail,
    EvaluationShape,
    ReportShape,
    Suites,
)
from api.http.schemas import Page
from api.jobs.files import evaluation_folder
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.models import Distillation
from kdnas.db.repository import evaluations, events, jobs
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import PREDICTIONS_FILE
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec, OwnTaskSpec
from kdnas.testing.job_rows import make_distilled
from kdnas.testing.truth import assert_shape

EVALUATIONS, SMALL = "/api/v1/evaluations", Architecture.parse("3,12,384,384,gelu")
SETTINGS = FinetuneSettings(2e-5, 3)


@pytest.fixture
def data(settings: Settings) -> Path:
    """A data root with the files of two tasks of GLUE."""
    root = Path(settings.data_roots[0])
    for task in ("SST-2", "RTE"):
        (root / "glue" / task).mkdir(parents=True)
        for part in ("train", "dev"):
            (root / "glue" / task / f"{part}.tsv").write_text("sentence\tlabel\ngood\t1\n")
    return root / "glue"


def store(
    database: Database,
    model: str,
    scores: Sequence[float],
    *,
    task: str = "SST-2",
    data: str = "d1",
    settings: FinetuneSettings = SETTINGS,
    distillation_id: str | None = None,
    fingerprint: str | None = None,
    official: bool = True,
    method: int | None = None,
) -> list[str]:
    """Store finished evaluations, a seed each, as ``kdnas evaluate`` does."""
    ids = []
    for seed, score in enumerate(scores):
        result = TaskResult(
            task=task,
            suite="glue",
            seed=seed,
            settings=settings,
            metrics={"dev": {"accuracy": score}},
            main=score,
            seconds=2.0,
            steps=10,
            train_examples=60,
            official_split=official,
        )
        spec = {
            "key": f"{model} {fingerprint} {task} {data} {settings} {seed} {method}",
            "model": {"ref": model, "fingerprint": fingerprint or model},
            "data": data,
            "settings": settings.to_json(),
            **({} if method is None else {"method": method}),
        }
        with database.write() as session:
            row = evaluations.take_evaluation(
                session,
                spec,
                model=model,
                suite="glue",
                task=task,
                seed=seed,
                distillation_id=distillation_id,
            )
            evaluations.set_figures(session, row.id, result.to_json())
        ids.append(row.id)
    return ids


@pytest.mark.databases("sqlite", "postgresql")
def test_a_row_for_each_task_and_seed(client: TestClient, database: Database, data: Path) -> None:
    body = {"model": "minilm", "suite": "glue", "data_dir": str(data), "seeds": 2}
    answer = client.post(EVALUATIONS, json=body, headers={"Idempotency-Key": "one"})
    made = answer.json()["items"]
    assert answer.status_code == 202
    for row in made:
        assert_shape(EvaluationDetail, row)
    pairs = [("SST-2", 0), ("SST-2", 1), ("RTE", 0), ("RTE", 1)]
    assert [(row["task"], row["seed"]) for row in made] == pairs
    assert {(row["status"], row["owner_kind"], row["score"]) for row in made} == {
        ("queued", "service", None)
    }
    request = made[3]["spec"]["request"]
    assert (request["tasks"], request["seeds"], request["data_dir"]) == (["RTE"], [1], str(data))
    assert client.get(f"{EVALUATIONS}/{made[3]['id']}").json() == made[3]
    assert len(client.get(answer.headers["location"]).json()["items"]) == 4
    data.rename(data.with_name("moved"))  # what was asked for is not looked for again
    again = client.post(EVALUATIONS, json=body, headers={"Idempotency-Key": "one"})
    assert again.status_code == 202, again.json()
    assert again.json() == answer.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert client.post(EVALUATIONS, json=body).status_code in {404, 422}
    with database.read() as session:
        told = events.events_since(session)
    assert {event.type for event in told} == {"evaluation_created"}
    assert [(event.job_id, event.payload) for event in told] == [
        (
            row["id"],
            {
                "evaluation": row["id"],
                "name": event.payload["name"],
                "model": "minilm",
                "suite": "glue",
                "task": row["task"],
                "seed": row["seed"],
            },
        )
        for event, row in zip(told, made, strict=True)
    ]
    assert told[0].payload["name"].startswith(f"{made[0]['task']}-seed-{made[0]['seed']}-")


def test_an_answer_is_not_repeated_once_one_of_its_jobs_is_gone(
    client: TestClient, data: Path
) -> None:
    body = {
        "model": "minilm",
        "suite": "glue",
        "data_dir": str(data),
        "tasks": ["SST-2"],
        "seeds": 2,
    }
    key = {"Idempotency-Key": "one"}
    made = client.post(EVALUATIONS, json=body, headers=key).json()["items"]
    client.patch(f"{EVALUATIONS}/{made[1]['id']}", json={"action": "cancel"})
    assert client.delete(f"{EVALUATIONS}/{made[1]['id']}").is_success
    again = client.post(EVALUATIONS, json=body, headers=key)
    assert again.status_code == 409
    assert "has been deleted since" in again.json()["detail"]


def test_a_users_table_and_a_grid_are_asked_for(client: TestClient, data: Path) -> None:
    table = data.parent / "reviews.csv"
    table.write_text("review,stars\ngood,1\n", "utf-8")
    body: dict[str, Any] = {
        "model": "minilm",
        "suite": "own",
        "data_dir": str(table),
        "seeds": 1,
        "own": {"text": "review", "label": "stars", "kind": "regression"},
        "grid": {"epochs": [2, 4]},
    }
    answer = client.post(EVALUATIONS, json=body)
    assert answer.status_code == 202
    (row,) = answer.json()["items"]
    assert (row["suite"], row["task"], row["seed"]) == ("own", "reviews", 0)
    request = row["spec"]["request"]
    assert (request["own"]["label"], request["grid"]["epochs"]) == ("stars", [2, 4])
    assert EvaluationSpec.read(request, "stored").own == OwnTaskSpec(**body["own"])


def test_a_student_is_named_by_its_distillation(
    client: TestClient, database: Database, data: Path, tmp_path: Path
) -> None:
    student = tmp_path / "elsewhere"  # where a request may not look by itself
    student.mkdir()
    distillation_id = make_distilled(database, "small", student)
    make_distilled(database, "waiting", None)
    body = {"suite": "glue", "tasks": ["sst2"], "data_dir": str(data), "seeds": [7]}
    for reference in ("small", distillation_id):
        answer = client.post(EVALUATIONS, json={**body, "model": f"distillation:{reference}"})
        (row,) = answer.json()["items"]
        assert answer.status_code == 202
        assert (row["model"], row["distillation_id"]) == (str(student), distillation_id)
        assert (row["distillation_name"], row["seed"]) == ("small", 7)
    refused = client.post(EVALUATIONS, json={**body, "model": "distillation:waiting"})
    assert refused.status_code == 409
    assert "is queued and has no student yet; wait until" in refused.json()["detail"]
    with database.write() as session:
        waiting = jobs.get_job(session, "waiting", Distillation).id
        jobs.set_status(session, waiting, "cancelled")
    refused = client.post(EVALUATIONS, json={**body, "model": "distillation:waiting"})
    assert "is cancelled and has no student yet; name one" in refused.json()["detail"]
    assert client.post(EVALUATIONS, json={**body, "model": "distillation:no"}).status_code == 404
    assert client.post(EVALUATIONS, json={**body, "model": str(student)}).status_code == 422


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "/etc"}, "model.ref '/etc' is outside KDNAS_DATA_ROOTS"),
        ({"model": "nobody"}, "model.ref 'nobody' is outside KDNAS_DATA_ROOTS"),
        ({"data_dir": "/etc"}, "data_dir '/etc' is outside KDNAS_DATA_ROOTS"),
        ({"data_dir": "a\0b"}, "'a\\x00b' holds a NUL"),
        ({"model": {"ref": "minilm", "revision": "\0"}}, "'\\x00' holds a NUL"),
        ({"suite": "glu"}, "unknown suite 'glu', did you mean 'glue'"),
        ({"tasks": ["XNLI"]}, "unknown task of suite glue 'XNLI'"),
        ({"tasks": ["CoLA"]}, "no data of CoLA in"),
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"seeds": [2**31]}, "seeds.0: give a whole number from 0 to 2147483647"),
        ({"seeds": 251}, "2 tasks with 251 seeds each are more than 500"),
        ({"tasks": ["RTE"], "max_steps": 0}, "max_steps"),
        ({"colour": "red"}, "colour"),
        ({"grid": {}, "epochs": 2}, "a grid chooses learning rate and epochs"),
        ({"grid": {"epochs": [0]}}, "grid.epochs.0: give a number above 0"),
        ({"suite": "own", "data_dir": None}, "needs data_dir, its file or folder"),
        ({"suite": "own", "own": {"metrics": ["f2"]}}, "unknown metric of a classification 'f2'"),
        ({"suite": "own", "own": {"name": "a\n"}}, "own.name"),
        ({"own": {}}, "not of suite 'glue'; take suite 'own'"),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(
    client: TestClient, data: Path, changes: dict[str, Any], said: str
) -> None:
    body = {"model": "minilm", "suite": "glue", "data_dir": str(data), "seeds": 1}
    answer = client.post(EVALUATIONS, json=body | changes)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]
    assert client.get(EVALUATIONS).json()["items"] == []


def test_the_suites_are_told(client: TestClient) -> None:
    suites = client.get(f"{EVALUATIONS}/suites").json()
    assert_shape(Suites, suites)
    assert {s["suite"]: s["tasks"] for s in suites["items"]}["glue"][-1] == "WNLI"
    refused = client.options(f"{EVALUATIONS}/suites")  # not an evaluation with that id
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_without_a_folder_the_hub_has_the_data(client: TestClient) -> None:
    answer = client.post(EVALUATIONS, json={"model": "minilm", "suite": "glue", "seeds": 1})
    assert len(answer.json()["items"]) == 9


@pytest.mark.databases("sqlite", "postgresql")
def test_evaluations_are_filtered_and_sorted(client: TestClient, database: Database) -> None:
    distillation_id = make_distilled(database, "small", None)
    store(database, "student", [0.5, 0.6], distillation_id=distillation_id)
    store(database, "teacher", [0.9], task="RTE")
    first = client.get(EVALUATIONS).json()["items"][0]["id"]
    for query, found in (
        ("", [("teacher", 0), ("student", 1), ("student", 0)]),
        ("sort=model&limit=2", [("student", 0), ("student", 1)]),
        ("sort=-seed&limit=1", [("student", 1)]),
        ("model=teacher", [("teacher", 0)]),
        ("suite=xnli", []),
        ("task=RTE&status=succeeded", [("teacher", 0)]),
        ("status=queued", []),
        ("owner_kind=cli&distillation=small", [("student", 1), ("student", 0)]),
    ):
        page = client.get(f"{EVALUATIONS}?{query}").json()
        assert_shape(Page[EvaluationShape], page)
        assert [(row["model"], row["seed"]) for row in page["items"]] == found, query
    page = client.get(f"{EVALUATIONS}?limit=1").json()
    rest = client.get(f"{EVALUATIONS}?limit=5&cursor={page['next_cursor']}").json()["items"]
    assert [page["items"][0]["id"], len(rest)] == [first, 2]
    assert client.get(f"{EVALUATIONS}?distillation=nobody").status_code == 404
    assert client.get(f"{EVALUATIONS}?colour=red").status_code == 422
    row = client.get(f"{EVALUATIONS}/{first}").json()
    assert (row["score"], row["metrics"]) == (0.9, {"dev": {"accuracy": 0.9}})
    assert (row["status"], row["official_split"], row["steps"]) == ("succeeded", True, 10)
    models = client.get(f"{EVALUATIONS}/models").json()
    assert_shape(EvaluatedModels, models)
    assert [(m["model"], m["distillation_name"], m["num_succeeded"]) for m in models["items"]] == [
        ("teacher", None, 1),
        ("student", "small", 2),
    ]


def test_an_evaluation_is_paused_resumed_and_cancelled(client: TestClient, data: Path) -> None:
    body = {"model": "minilm", "suite": "glue", "data_dir": str(data), "seeds": 1}
    path = f"{EVALUATIONS}/{client.post(EVALUATIONS, json=body).json()['items'][0]['id']}"
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        answer = client.patch(path, json={"action": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert client.patch(path, json={"action": "resume"}).status_code == 409
    for unknown in ("/nobody", "/%00"):
        assert client.get(f"{EVALUATIONS}{unknown}").status_code == 404


@pytest.mark.databases("sqlite", "postgresql")
def test_the_report_puts_seeds_together_and_published_rows_beside(
    client: TestClient, database: Database
) -> None:
    distillation_id = make_distilled(database, "small", None)
    store(database, "student", [0.5, 0.7], distillation_id=distillation_id, official=False)
    store(database, "teacher", [0.8, 0.8])
    for name, shown in (("distillation:small", "small"), ("student", "student")):
        query = {"model": name, "suite": "glue", "against": "teacher"}
        report = client.get(f"{EVALUATIONS}/report", params=query).json()
        assert_shape(ReportShape, report)
        own, teacher, *published = report["rows"]
        assert (own["model"], teacher["model"], own["origin"]) == (shown, "teacher", "measured")
        cell = own["scores"]["SST-2"]
        assert cell == pytest.approx({"mean": 0.6, "deviation": 0.02**0.5, "seeds": 2})
        assert {row["origin"] for row in published} == {"published"}
        assert report["against"][0]["retained"]["SST-2"] == pytest.approx(0.75)
        assert report["notes"] == ["SST-2: not the official split"]
    for form, media, part in (
        ("md", "text/markdown", "| small | 60.0±14.1 |"),
        ("csv", "text/csv", "glue,small,measured,,SST-2,dev,accuracy,0.6"),
        ("tex", "application/x-tex", r"small & 60.0$\pm$14.1"),
    ):
        query = {"model": "distillation:small", "suite": "glue", "format": form}
        answer = client.get(f"{EVALUATIONS}/report", params=query)
        assert answer.headers["content-type"].startswith(media)
        assert part in answer.text


def test_a_report_mixes_nothing_that_was_done_in_different_ways(
    client: TestClient, database: Database
) -> None:
    longer = FinetuneSettings(2e-5, 6)
    store(database, "student", [0.1, 0.1, 0.1], data="old")
    store(database, "student", [0.2], settings=longer, fingerprint="before")
    store(database, "student", [0.5, 0.7], settings=longer)
    store(database, "teacher", [0.8], settings=longer)
    store(database, "teacher", [0.9])
    query = {"model": "student", "suite": "glue", "against": "teacher"}
    own, teacher, *_ = client.get(f"{EVALUATIONS}/report", params=query).json()["rows"]
    assert own["scores"]["SST-2"]["mean"] == pytest.approx(0.6)
    assert teacher["scores"]["SST-2"]["mean"] == pytest.approx(0.8)
    store(database, "student", [0.65], settings=longer, method=3)  # in which others were not done
    own, *_ = client.get(f"{EVALUATIONS}/report", params=query).json()["rows"]
    assert (own["scores"]["SST-2"]["mean"], own["scores"]["SST-2"]["seeds"]) == (
        pytest.approx(0.65),
        1,
    )


def test_models_are_compared_example_by_example_where_predictions_lie_here(
    client: TestClient, database: Database, settings: Settings
) -> None:
    student, teacher = (
        store(database, "student", [0.5, 0.5]),
        store(database, "teacher", [1.0, 1.0]),
    )
    store(database, "student", [0.5], task="RTE")
    store(database, "teacher", [1.0], task="RTE")
    query = {"model": "student", "suite": "glue", "against": "teacher"}
    (against,) = client.get(f"{EVALUATIONS}/report", params=query).json()["against"]
    assert against["bootstrap"] == {}
    for ids, right in ((student, 2), (teacher, 1)):  # every second example, and every one
        for evaluation_id in ids:
            file = evaluation_folder(settings, evaluation_id) / PREDICTIONS_FILE
            file.parent.mkdir(parents=True)
            lines = (
                {"set": "dev", "id": str(i), "score": float(i % right == 0)} for i in range(40)
            )
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = client.get(f"{EVALUATIONS}/report", params=query).json()
    assert_shape(ReportShape, report)
    (against,) = report["against"]
    assert against["bootstrap"].keys() == {"SST-2"}
    test = against["bootstrap"]["SST-2"]
    assert (test["difference"], test["examples"]) == (-0.5, 40)
    assert -0.7 < test["low"] < -0.5 < test["high"] < -0.3
    assert test["p_value"] < 0.01


def test_a_report_of_nothing_is_not_there(client: TestClient, database: Database) -> None:
    store(database, "student", [0.5])
    store(database, "teacher", [0.5], data="other")
    store(database, "tuned", [0.5], data="other", settings=FinetuneSettings(2e-5, 9))
    store(database, "older", [0.5], method=3)
    store(database, "elsewhere", [0.5], task="RTE")
    for query, said in (
        ("model=nobody&suite=glue", "nothing is stored of model 'nobody' over suite 'glue'"),
        ("model=student&suite=xnli", "nothing is stored of model 'student'"),
        ("model=distillation:nobody&suite=glue", "there is no distillation 'nobody'"),
    ):
        answer = client.get(f"{EVALUATIONS}/report?{query}")
        assert (answer.status_code, said in answer.json()["detail"]) == (404, True), query
    others = "".join(f"&against={name}" for name in ("teacher", "tuned", "older", "elsewhere"))
    report = client.get(f"{EVALUATIONS}/report?model=student&suite=glue{others}").json()
    assert [row["model"] for row in report["rows"] if row["origin"] == "measured"] == ["student"]
    said = "what is stored was done with"
    assert report["notes"] == [
        f"teacher: {said} other data; evaluate it anew",
        f"tuned: {said} other data and other settings; evaluate it anew",
        f"older: {said} another version of the fine-tuning; evaluate it anew",
        "elsewhere: nothing is stored of SST-2",
    ]
    assert client.get(f"{EVALUATIONS}/report?model=student").status_code == 422


def keep(settings: Settings, evaluation_id: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write what an evaluation said, and what was right."""
    folder = evaluation_folder(settings, evaluation_id)
    folder.mkdir(parents=True)
    lines = [
        {"set": "dev", "id": str(n), "text": "t", "prediction": said, "gold": right}
        | {"score": float(said == right)}
        for n, (said, right) in enumerate(pairs)
    ]
    (folder / PREDICTIONS_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_classes_of_all_seeds_are_told_together(
    client: TestClient, database: Database, settings: Settings
) -> None:
    older = store(database, "student", [0.0], data="other")  # the newest way counts
    one, two = store(database, "student", [0.5, 1.0])
    store(database, "student", [0.5, 1.0], task="RTE")  # whose predictions are elsewhere
    for evaluation_id, said in ((one, "yn"), (two, "nn"), (*older, "yy")):
        keep(settings, evaluation_id, [("no", "no"), ("yes" if said[0] == "y" else "no", "yes")])
    query = {"model": "student", "suite": "glue"}
    answer = client.get(f"{EVALUATIONS}/classes", params=query).json()
    assert_shape(ClassTables, answer)
    (table,) = answer["items"]
    assert (table["task"], table["set"], table["seeds"]) == ("SST-2", "dev", [0, 1])
    assert table["confusion"] == {"labels": ["no", "yes"], "counts": [[2, 0], [1, 1]]}
    no, yes = table["classes"]
    assert no == pytest.approx(
        {"label": "no", "precision": 2 / 3, "recall": 1.0, "f1": 0.8, "support": 2}
    )
    assert (yes["precision"], yes["recall"], yes["support"]) == (1.0, 0.5, 2)
    for wrong, status in (({"model": "nobody", "suite": "glue"}, 404), ({"model": "x"}, 422)):
        assert client.get(f"{EVALUATIONS}/classes", params=wrong).status_code == status


def test_what_was_said_is_fetched_as_it_lies_there(
    client: TestClient, database: Database, settings: Settings
) -> None:
    (one,) = store(database, "student", [0.5])
    keep(settings, one, [("no", "no"), ("no", "yes")])
    query = {"model": "student", "suite": "glue", "task": "SST-2"}
    answer = client.get(f"{EVALUATIONS}/predictions", params=query)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert "SST-2-seed0.jsonl" in answer.headers["content-disposition"]
    assert [json.loads(line)["gold"] for line in answer.text.splitlines()] == ["no", "yes"]
    missing = client.get(f"{EVALUATIONS}/predictions", params=query | {"seed": 3})
    assert missing.status_code == 404
    assert "with seed 3 is not on this machine; there is SST-2 seed 0" in missing.text

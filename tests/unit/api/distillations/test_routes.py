"""Distillations over REST: asked for whole or of a search, listed, followed, changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.distillations.schemas import (
    DistillationCurve,
    DistillationDetail,
    DistillationShape,
)
from api.http.schemas import Page
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.records import HeldOutReading
from kdnas.db.repository import distillations, jobs, searches
from kdnas.records import CurvePoint, Losses
from kdnas.specs.search import SearchSpec
from kdnas.testing.truth import assert_shape

DISTILLATIONS, SMALL = "/api/v1/distillations", "3,12,384,384,gelu"


def test_a_distillation_is_asked_for(client: TestClient) -> None:
    answer = client.post(
        DISTILLATIONS, json={"name": "mine", "architecture": SMALL, "training": {"steps": 5}}
    )
    made = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{DISTILLATIONS}/{made['id']}"
    assert_shape(DistillationDetail, made)
    assert (made["status"], made["owner_kind"], made["search_id"]) == ("queued", "service", None)
    assert (made["architecture"], made["losses"], made["output"]) == (SMALL, None, None)
    assert made["spec"]["training"]["steps"] == 5
    assert client.get(answer.headers["location"]).json() == made
    assert client.get(f"{DISTILLATIONS}/mine").json() == made


def test_a_distillation_of_a_search_takes_its_inputs(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    # A search of the command line may read what the service may not; its students are its own.
    spec = SearchSpec.read(
        {
            "teacher": {"ref": str(tmp_path / "teacher"), "fingerprint": "t1"},
            "corpus": {"source": ["/texts"], "max_length": 64, "fingerprint": "c1"},
            "objective": {"name": "minilmv2"},
            "student": "random",
        },
        "search",
    )
    with database.write() as session:
        search = searches.create_search(session, spec.to_json(), name="origin")
    body: dict[str, Any] = {"search": "origin", "architecture": SMALL}
    key = {"Idempotency-Key": "one"}
    made = client.post(DISTILLATIONS, json=body, headers=key)
    assert made.status_code == 202
    assert made.json()["search_id"] == search.id
    found = made.json()["spec"]
    assert (found["teacher"], found["corpus"]) == (search.spec["teacher"], search.spec["corpus"])
    assert (found["objective"], found["student"]["init"]) == (search.spec["objective"], "random")
    own = client.post(DISTILLATIONS, json={**body, "corpus": "pydocs", "training": {"steps": 3}})
    found = own.json()["spec"]
    assert (found["corpus"]["source"], found["corpus"]["fingerprint"]) == (["pydocs"], None)
    assert (found["teacher"], found["training"]["steps"]) == (search.spec["teacher"], 3)
    refused = client.post(DISTILLATIONS, json={**body, "corpus": "/texts"})
    assert (refused.status_code, "KDNAS_DATA_ROOTS" in refused.json()["detail"]) == (422, True)
    assert client.post(DISTILLATIONS, json={**body, "search": "nobody"}).status_code == 404
    listed = client.get(f"{DISTILLATIONS}?search=origin").json()["items"]
    assert [row["id"] for row in listed] == [own.json()["id"], made.json()["id"]]
    with database.write() as session:
        jobs.delete_job(session, search.id, with_standing=True)
    again = client.post(DISTILLATIONS, json=body, headers=key)
    assert (again.status_code, again.json()["id"]) == (202, made.json()["id"])
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.architecture"),
        ({"architecture": "1,2"}, "body.architecture"),
        ({"architecture": SMALL, "trianing": {}}, "body.trianing"),
    ],
)
def test_a_wrong_spec_is_told_by_place(
    client: TestClient, body: dict[str, Any], where: str
) -> None:
    answer = client.post(DISTILLATIONS, json=body)
    assert answer.status_code == 422
    assert [problem["where"] for problem in answer.json()["errors"]] == [where]


@pytest.mark.databases("sqlite", "postgresql")
def test_distillations_are_filtered_and_sorted(client: TestClient) -> None:
    other = "10,12,384,384,gelu"
    for name, architecture in (("b", SMALL), ("a", other), ("c", SMALL)):
        client.post(DISTILLATIONS, json={"name": name, "architecture": architecture})
    client.patch(f"{DISTILLATIONS}/c", json={"action": "pause"})
    for query, names in (
        ("", ["c", "a", "b"]),
        ("sort=name", ["a", "b", "c"]),
        ("sort=architecture&limit=1", ["a"]),
        (f"architecture={SMALL}", ["c", "b"]),
        ("status=paused", ["c"]),
        ("owner_kind=cli", []),
    ):
        page = client.get(f"{DISTILLATIONS}?{query}").json()
        assert_shape(Page[DistillationShape], page)
        assert [row["name"] for row in page["items"]] == names, query
    assert client.get(f"{DISTILLATIONS}?search=nobody").status_code == 404
    assert client.get(f"{DISTILLATIONS}?colour=red").status_code == 422


@pytest.mark.databases("sqlite", "postgresql")
def test_the_curve_is_thinned_and_its_ends_are_kept(client: TestClient, database: Database) -> None:
    with database.write() as session:
        row = distillations.create_distillation(session, {}, Architecture.parse(SMALL), name="m")
        distillations.set_distillation_progress(
            session,
            row.id,
            100,
            200,
            [CurvePoint(step, 1 / step, 8e-4) for step in range(1, 101)],
            [HeldOutReading(step, Losses(0.4, 0.3, 1 / (step or 2), 0.1)) for step in (0, 50, 100)],
        )
    curve = client.get(f"{DISTILLATIONS}/m/curve?limit=10").json()
    assert_shape(DistillationCurve, curve)
    steps = [point["step"] for point in curve["points"]]
    assert (len(steps), steps[0], steps[-1]) == (10, 1, 100)
    assert [(row["step"], row["relative"]) for row in curve["held_out"]] == [
        (0, 0.5),
        (50, 0.02),
        (100, 0.01),
    ]
    assert len(client.get(f"{DISTILLATIONS}/m/curve").json()["points"]) == 100
    (found,) = client.get(DISTILLATIONS).json()["items"]
    assert (found["done"], found["total"]) == (100, 200)
    assert found["losses"] == {
        "step": 100,
        "training": 0.4,
        "mean": 0.3,
        "relative": 0.01,
        "output": 0.1,
    }


def test_a_distillation_is_paused_resumed_and_cancelled(client: TestClient) -> None:
    client.post(DISTILLATIONS, json={"name": "mine", "architecture": SMALL})
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        answer = client.patch(f"{DISTILLATIONS}/mine", json={"action": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert client.patch(f"{DISTILLATIONS}/mine", json={"action": "pause"}).status_code == 409
    for path in ("/nobody", "/nobody/curve", "/%00"):
        assert client.get(f"{DISTILLATIONS}{path}").status_code == 404

"""One rule for names, whoever gives them, and names of any script wherever a name goes."""

from __future__ import annotations

import unicodedata
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

NAME = "Größe-測試-1"
OTHERS = unicodedata.normalize("NFD", NAME)

pytestmark = pytest.mark.databases("sqlite", "postgresql")


def made(client: TestClient, **more: Any) -> Any:
    answer = client.post("/api/v1/searches", json={"name": NAME, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_a_name_of_another_script_is_found_under_either_spelling(client: TestClient) -> None:
    job = made(client)
    assert job["name"] == NAME
    for spelling in (NAME, OTHERS):
        assert client.get(f"/api/v1/searches/{quote(spelling)}").json()["id"] == job["id"]
        listed = client.get("/api/v1/jobs", params={"name": spelling}).json()["items"]
        assert [one["id"] for one in listed] == [job["id"]]
        exported = client.get(f"/api/v1/searches/{quote(spelling)}/export")
        assert exported.status_code == 200
        assert job["id"] in exported.headers["content-disposition"]
    assert client.get(f"/api/v1/jobs/{quote(NAME)}/log").status_code == 200
    again = client.post("/api/v1/searches", json={"name": OTHERS})
    assert again.status_code == 409
    assert [one["where"] for one in again.json()["errors"]] == ["body.name"]


@pytest.mark.parametrize("name", ["with space", "..", "a/b", "a\n", "", "x" * 101])
def test_asking_and_renaming_refuse_the_same_in_the_same_words(
    client: TestClient, name: str
) -> None:
    job = made(client)
    asked = [
        client.post("/api/v1/searches", json={"name": name}),
        client.post("/api/v1/pipelines", json={"name": name, "evaluation": {"suite": "glue"}}),
        client.patch(f"/api/v1/jobs/{job['id']}", json={"name": name}),
    ]
    assert {answer.status_code for answer in asked} == {422}
    assert len({answer.json()["detail"] for answer in asked}) == 1
    for answer in asked:
        assert [one["where"] for one in answer.json()["errors"]] == ["body.name"]


def test_an_id_is_no_name(client: TestClient) -> None:
    job = made(client)
    answer = client.post("/api/v1/sweeps", json={"name": job["id"]})
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"name {job['id']!r} is the id of a job; choose another name"
    assert client.patch(f"/api/v1/jobs/{NAME}", json={"name": job["id"]}).status_code == 409


def test_names_of_parts_of_a_pipeline_have_room_for_what_tells_them_apart(
    client: TestClient,
) -> None:
    body = {"name": "ü" * 100, "evaluation": {"suite": "glue"}}
    assert client.post("/api/v1/pipelines", json=body).status_code == 202

"""Whose a job is, and who did what to it: told by jobs, their lists and their events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.pipelines.advance import begin_pipeline
from kdnas.cli.screens.event_words import in_words
from kdnas.db.engine import Database
from kdnas.db.records import EventRecord
from kdnas.db.repository import events, jobs, searches, tokens
from kdnas.settings import Settings
from kdnas.testing.walked_pipeline import pipeline_spec

MakeClient = Callable[[Settings], TestClient]

JOBS = "/api/v1/jobs"
OPERATOR = "operator-token-0123456789"

pytestmark = pytest.mark.databases("sqlite", "postgresql")


@pytest.fixture
def service(settings: Settings, make_client: MakeClient) -> TestClient:
    return make_client(replace(settings, operator_token=OPERATOR))


@pytest.fixture
def anna(database: Database) -> dict[str, str]:
    """The header of a user."""
    with database.write() as session:
        return bearer(tokens.create_token(session, "anna", "operator")[1])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def told(database: Database, since: int = 0) -> list[EventRecord]:
    with database.read() as session:
        return events.events_since(session, since)


def newest(database: Database) -> int:
    with database.read() as session:
        return events.last_event_id(session)


def search(client: TestClient, headers: Mapping[str, str], name: str) -> dict[str, Any]:
    answer = client.post("/api/v1/searches", json={"name": name}, headers=headers)
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_job_is_his_who_asked_for_it(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    assert search(service, anna, "hers")["owner"] == "anna"
    assert search(service, bearer(OPERATOR), "of-the-service")["owner"] == "operator"
    with database.write() as session:
        searches.create_search(session, {}, name="nobodys", owner_kind="service")
    rows = service.get(JOBS, headers=anna).json()["items"]
    assert {row["name"]: row["owner"] for row in rows} == {
        "hers": "anna",
        "of-the-service": "operator",
        "nobodys": None,
    }
    for path in (JOBS, "/api/v1/searches"):
        found = service.get(path, params={"owner": "anna"}, headers=anna).json()["items"]
        assert [row["name"] for row in found] == ["hers"]
        assert service.get(path, params={"owner": "ann"}, headers=anna).json()["items"] == []
    by = {e.payload.get("name"): e.payload.get("by") for e in told(database) if e.kind}
    assert by == {"hers": "anna", "of-the-service": "operator", "nobodys": None}


def test_without_a_log_in_nobody_knows_whose_it_is(client: TestClient, database: Database) -> None:
    made = search(client, {}, "mine")
    assert made["owner"] is None
    assert client.patch(f"{JOBS}/mine", json={"action": "pause"}).status_code == 200
    assert all("by" not in event.payload for event in told(database))


def test_parts_are_theirs_whose_the_whole_is(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    with database.write(by="anna") as session:
        whole = begin_pipeline(session, pipeline_spec(name="whole"), "service").id
    with database.write() as session:  # as a coordinator does
        part = searches.create_search(
            session, {}, name="later", owner_kind="service", parent_id=whole
        )
    rows = service.get(JOBS, params={"parent": "whole"}, headers=anna).json()["items"]
    assert [row["owner"] for row in rows] == ["anna", "anna"]
    (of_part,) = [e for e in told(database) if e.job_id == part.id]
    assert "by" not in of_part.payload  # nobody has asked for it at that moment


def test_the_command_lines_jobs_are_this_machines_users(database: Database) -> None:
    with database.write() as session:
        made = searches.create_search(session, {}, name="typed", owner_kind="cli")
        assert jobs.get_job(session, made.id).owner == jobs._user_of_this_machine()
    assert told(database)[-1].payload["by"] == "cli"


def test_a_user_of_this_machine_may_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 987654)
    assert jobs._user_of_this_machine() is None


def test_each_change_says_who_made_it(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    made = search(service, bearer(OPERATOR), "first")
    since = newest(database)
    path = f"{JOBS}/{made['id']}"
    for change in (
        {"action": "pause"},
        {"action": "resume"},
        {"name": "second", "note": "the good one", "labels": ["paper", "b"]},
        {"note": "the good one", "labels": ["paper", "b"]},  # nothing new
        {"note": "", "labels": []},
        {"action": "cancel"},
    ):
        assert service.patch(path, json=change, headers=anna).status_code == 200, change
    found = told(database, since)
    assert {event.payload.pop("by") for event in found} == {"anna"}  # type: ignore[attr-defined]
    assert [(event.type, event.payload) for event in found] == [
        ("search_status", {"status": "paused", "error": None}),
        ("search_status", {"status": "queued", "error": None}),
        ("search_renamed", {"name": "second"}),
        ("search_noted", {"note": "the good one"}),
        ("search_labelled", {"labels": ["paper", "b"]}),
        ("search_noted", {"note": None}),
        ("search_labelled", {"labels": []}),
        ("search_status", {"status": "cancelled", "error": None}),
    ]
    assert [in_words(event) for event in told(database, since)] == [
        "Now paused, by anna",
        "Now queued, by anna",
        "Now called second, by anna",
        "Note: the good one, by anna",
        "Labels: paper, b, by anna",
        "Its note was taken away, by anna",
        "Labels: none, by anna",
        "Now cancelled, by anna",
    ]
    assert service.get(path, headers=anna).json()["owner"] == "operator"


def test_what_is_refused_is_not_told(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    search(service, anna, "first")
    search(service, anna, "taken")
    since = newest(database)
    change = {"note": "x", "labels": ["y"], "name": "taken"}
    assert service.patch(f"{JOBS}/first", json=change, headers=anna).status_code == 409
    assert told(database, since) == []
    found = service.get(f"{JOBS}/first", headers=anna).json()
    assert (found["note"], found["labels"]) == (None, [])


def test_who_deleted_a_job_is_known_when_it_is_gone(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    made = search(service, bearer(OPERATOR), "first")
    assert service.delete(f"{JOBS}/{made['id']}", headers=anna).status_code == 204
    (event,) = [event for event in told(database) if "search" in event.type]
    assert (event.type, event.job_id, event.root_job_id) == ("search_deleted", None, None)
    assert event.payload == {"job": made["id"], "kind": "search", "name": "first", "by": "anna"}
    assert in_words(event) == "The search first was deleted, by anna"


def test_the_page_of_the_whole_tells_of_a_part_that_was_deleted(
    service: TestClient, database: Database, anna: dict[str, str]
) -> None:
    with database.write(by="anna") as session:
        whole = begin_pipeline(session, pipeline_spec(name="whole"), "service").id
    part = service.get(JOBS, params={"parent": "whole"}, headers=anna).json()["items"][0]
    gone = service.delete(f"{JOBS}/{part['id']}?force=true", headers=anna)
    assert gone.status_code == 204
    with database.read() as session:
        event = events.events_since(session, job_id=whole)[-1]
    assert (event.type, event.root_job_id) == ("search_deleted", whole)
    assert (event.payload["job"], event.payload["by"]) == (part["id"], "anna")


def test_a_key_of_another_user_is_another_key(service: TestClient, anna: dict[str, str]) -> None:
    key, body = {"Idempotency-Key": "first"}, {"corpus": {"source": "pydocs"}}
    of_anna, of_operator = (
        [
            service.post("/api/v1/searches", json=body, headers={**who, **key}).json()["id"]
            for _ in range(2)
        ]
        for who in (anna, bearer(OPERATOR))
    )
    assert len(set(of_anna)) == len(set(of_operator)) == 1
    assert of_anna != of_operator

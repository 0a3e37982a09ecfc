"""A request that is sent again under its key is answered again, and done once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from fastapi.testclient import TestClient
from pydantic import BaseModel

from api.http.app import create_app
from api.http.idempotency import Answer, OnceDep
from kdnas.db.engine import Database, Session
from kdnas.db.models import Search
from kdnas.db.repository import idempotency, jobs, searches
from kdnas.errors import ConflictError
from kdnas.settings import Settings


class Thing(BaseModel):
    name: str | None = None


@pytest.fixture
def client(settings: Settings, database: Database) -> Iterator[TestClient]:
    """An application with one more route, which writes a search."""
    app: FastAPI = create_app(settings, database, coordinator=False)

    @app.post("/things", response_model=Thing)
    def make(thing: Thing, once: OnceDep) -> Response:
        def create(session: Session) -> Answer:
            record = searches.create_search(session, {}, name=thing.name)
            if record.name == "refused":
                raise ConflictError("refused after the row was written; choose another name")
            return Answer(Thing(name=record.name), location=f"/things/{record.id}")

        return once.answer(202, create)

    # Entered, so that all requests share one loop of events, as they do in a service.
    with TestClient(
        app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False
    ) as entered:
        yield entered


def post(client: TestClient, body: Any, key: str | None = "k1") -> Any:
    return client.post("/things", json=body, headers={"Idempotency-Key": key} if key else {})


def num_searches(database: Database) -> int:
    with database.read() as session:
        return len(jobs.newest_jobs(session, Search))


@pytest.mark.databases("sqlite", "postgresql")
def test_the_same_request_is_done_once(client: TestClient, database: Database) -> None:
    first, again = post(client, {}), post(client, {})
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert num_searches(database) == 1


def test_without_a_key_every_request_counts(client: TestClient, database: Database) -> None:
    assert post(client, {}, None).json() != post(client, {}, None).json()
    assert num_searches(database) == 2


def test_layout_of_the_body_does_not_count(client: TestClient, database: Database) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    for body in ('{"name":"a"}', ' {\n"name": "a"}'):
        assert client.post("/things", content=body, headers=headers).status_code == 202
    assert num_searches(database) == 1


def test_another_body_under_the_same_key_is_refused(client: TestClient, database: Database) -> None:
    post(client, {"name": "one"})
    refused = post(client, {"name": "two"})
    assert refused.status_code == 409
    assert "'k1' was used for another request" in refused.json()["detail"]
    assert num_searches(database) == 1


def test_a_failed_request_leaves_its_key_free(client: TestClient, database: Database) -> None:
    assert post(client, {"name": "refused"}).status_code == 409
    assert post(client, {"name": "taken"}).status_code == 202
    assert num_searches(database) == 1


@pytest.mark.databases("sqlite", "postgresql")
def test_twins_at_the_same_moment_are_done_once(client: TestClient, database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(client, {}), range(4)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["name"] for answer in answers}) == 1
    assert num_searches(database) == 1


@pytest.mark.databases("sqlite", "postgresql")
def test_a_key_is_forgotten_after_a_day(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(client, {})
    monkeypatch.setattr(idempotency, "KEPT_FOR", timedelta(seconds=-1))
    assert "idempotency-replayed" not in post(client, {}).headers
    assert num_searches(database) == 2


@pytest.mark.parametrize("key", ["", "two words", "x" * 201])
def test_a_key_is_of_visible_characters(client: TestClient, key: str) -> None:
    answer = client.post("/things", json={}, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["where"] == "header.Idempotency-Key"

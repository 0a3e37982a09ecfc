"""The application as a whole: problems, pages that are not there, its own description."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

import kdnas
from api.http.event_hub import MOST_STREAMS
from api.http.openapi import speak_json
from kdnas.db.engine import Database
from kdnas.db.repository import latencies
from kdnas.errors import ConflictError, DatabaseError, NotFoundError, SpecError, TrainingError
from kdnas.specs.load import merge
from kdnas.specs.objectives import OBJECTIVES
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.requests import REQUEST_NAMES, request_spec
from kdnas.specs.search import SearchSpec
from kdnas.specs.wording import field_errors
from kdnas.testing import demo_data

pytestmark = pytest.mark.databases("sqlite")


def test_who_is_asking(client: TestClient) -> None:
    answer = client.get("/api/v1/session")
    assert answer.status_code == 200
    assert answer.json() == {
        "role": "operator",
        "name": None,
        "login_required": False,
        "version": kdnas.__version__,
    }


def test_what_is_not_there_is_a_problem(client: TestClient) -> None:
    answer = client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no /api/v1/nothing; see /api/v1/docs",
    }


def test_a_wrong_method_is_a_problem_that_names_the_right_ones(client: TestClient) -> None:
    answer = client.delete("/api/v1/session")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert "does not take DELETE" in answer.json()["detail"]
    assert client.put("/api/v1/searches/x").headers["allow"] == "DELETE, GET, PATCH"


def test_published_results(client: TestClient) -> None:
    everything = client.get("/api/v1/reference").json()
    assert {result["paper"] for result in everything} >= {"trivedi2023", "wang2021"}
    chosen = client.get("/api/v1/reference?paper=trivedi2023&task=mnli").json()
    assert chosen
    assert all(result["paper"] == "trivedi2023" for result in chosen)
    assert all(any(s["task"] == "MNLI" for s in result["scores"]) for result in chosen)
    unknown = client.get("/api/v1/reference?paper=triveti2023")
    assert unknown.status_code == 404
    assert "did you mean 'trivedi2023'?" in unknown.json()["detail"]


def test_schemas_of_requests(client: TestClient) -> None:
    schema = client.get("/api/v1/schemas/search").json()
    assert schema["properties"]["seed"]["default"] == 0
    assert "architecture" in client.get("/api/v1/schemas/distillation").json()["required"]
    assert client.get("/api/v1/schemas/nothing").status_code == 422
    for name in REQUEST_NAMES:
        schema = request_spec(name).model_json_schema()
        speak_json(schema)
        assert client.get(f"/api/v1/schemas/{name}").json() == schema


def test_presets_are_beginnings_of_requests(client: TestClient) -> None:
    presets = {one["name"]: one for one in client.get("/api/v1/presets").json()["items"]}
    assert presets.keys() == {"cluster", "laptop", "paper"}
    for preset in presets.values():
        PipelineSpec.model_validate(preset["pipeline"])
        assert preset["search"]["space"].keys() == {"kind"}  # "space: paper" is written out
    assert presets["paper"]["search"]["controller"]["strategy"]["variant"] == "paper"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_preset_begins_a_request_for_any_objective(client: TestClient, objective: str) -> None:
    answer = client.get("/api/v1/presets", params={"objective": objective})
    laptop = {one["name"]: one for one in answer.json()["items"]}["laptop"]
    beginning = merge(laptop["search"], {"objective": {"name": objective}})
    assert SearchSpec.model_validate(beginning).objective.name == objective
    rate = laptop["search"]["proxy"]["learning_rate"]
    assert rate == (2e-4 if objective in ("od", "distilbert") else 1e-3)
    assert client.get("/api/v1/presets?objective=hss").status_code == 422


def test_nobody_has_all_streams_of_events(client: TestClient) -> None:
    hub = cast(FastAPI, client.app).state.events
    for _ in range(MOST_STREAMS):
        assert hub.take_place("testclient")
    refused = client.get("/api/v1/events")
    assert refused.status_code == 429
    assert refused.json()["detail"] == (
        "testclient has 1000 streams of events already; close some of them"
    )
    assert hub.take_place("somebody else")
    hub.leave_place("testclient")
    hub.close()  # so that a stream ends as soon as it has begun
    assert client.get("/api/v1/events").status_code == 200
    assert hub.take_place("testclient")  # whose place is free again
    assert not hub.take_place("testclient")


def test_parameters_that_do_not_fit_are_listed(client: TestClient) -> None:
    answer = client.get("/api/v1/events?since=-1&jobs=a")
    assert answer.status_code == 422
    since, jobs = answer.json()["errors"]
    assert since == {
        "where": "query.since",
        "message": "give a whole number from 0 to 9223372036854775807, not '-1'",
    }
    assert jobs["where"] == "query.jobs"
    assert jobs["message"] == "unknown parameter 'jobs', did you mean 'job'? Known: job, since"


def test_what_nobody_foresaw_is_a_problem_without_details(client: TestClient) -> None:
    assert isinstance(client.app, FastAPI)

    @client.app.get("/fail")
    def fail() -> None:
        raise ValueError("a secret detail")

    with capture_logs() as lines:
        answer = client.get("/fail")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert [line["event"] for line in lines] == ["request failed", "request"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("x"), 404),
        (ConflictError("x"), 409),
        (SpecError("x"), 422),
        (DatabaseError("x"), 503),
        (TrainingError("x"), 500),
    ],
)
def test_errors_and_their_statuses(client: TestClient, error: Exception, status: int) -> None:
    assert isinstance(client.app, FastAPI)

    @client.app.get("/fail")
    def fail() -> None:
        raise error

    answer = client.get("/fail")
    assert (answer.status_code, answer.json()["detail"]) == (status, "x")


def test_a_path_that_no_file_can_have_is_a_wrong_request(client: TestClient) -> None:
    body = {"model": "x" * 300, "suite": "glue", "tasks": ["RTE"], "data_dir": "y" * 300}
    answer = client.post("/api/v1/evaluations", json=body)
    assert answer.status_code == 422
    assert isinstance(client.app, FastAPI)

    @client.app.get("/fail")
    def fail() -> None:
        Path("x" * 300).stat()

    answer = client.get("/fail")
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        f"'{'x' * 60}… (300 characters)' is too long for the name of a file or a folder; give a "
        "shorter one"
    )


def test_the_document_tells_of_problems(client: TestClient) -> None:
    document = client.get("/api/v1/openapi.json").json()
    answers = document["paths"]["/api/v1/events"]["get"]["responses"]
    assert set(answers) == {"200", "403", "404", "409", "422", "429", "503"}
    assert set(answers["200"]["content"]) == {"text/event-stream"}
    problem = answers["422"]["content"]["application/problem+json"]["schema"]
    assert problem == {"$ref": "#/components/schemas/Problem"}
    assert "securitySchemes" not in document["components"]


def test_what_describes_requests_calls_values_as_json_does(client: TestClient) -> None:
    described = [
        *_words(client.get("/api/v1/openapi.json").json(), "description"),
        *_words(client.get("/api/v1/schemas/task_distillation").json(), "description"),
    ]
    assert any("null" in words for words in described)
    assert [words for words in described if re.search(r"\b(None|True|False)\b|``", words)] == []


def test_each_pattern_of_the_document_has_words(client: TestClient) -> None:
    patterns = set(_words(client.get("/api/v1/openapi.json").json(), "pattern"))
    assert len(patterns) > 8
    for pattern in patterns:
        item = {"type": "string_pattern_mismatch", "loc": (), "input": "x"}
        (error,) = field_errors({"type": "string", "pattern": pattern}, None, [item])
        assert "another form" not in error.message, pattern


def _words(schema: Any, key: str) -> Iterator[str]:
    """All texts that a schema has as a key, however deep."""
    if isinstance(schema, dict):
        if isinstance(words := schema.get(key), str):
            yield words
        for value in schema.values():
            yield from _words(value, key)
    elif isinstance(schema, list):
        for value in schema:
            yield from _words(value, key)


def test_the_api_can_be_read_in_a_browser(client: TestClient) -> None:
    answer = client.get("/api/v1/docs")
    assert answer.status_code == 200
    for path in client.get("/api/v1/openapi.json").json()["paths"]:
        assert path in answer.text
    assert "Last-Event-ID" in answer.text or "last-event-id" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.databases("postgresql")
def test_a_zero_character_in_a_parameter_is_no_failure_of_the_service(
    client: TestClient, database: Database
) -> None:
    """PostgreSQL takes no text with one: it must not get there."""
    search = demo_data.add_search(database, "searched", episodes=1, candidates_each=2)
    with database.write() as session:
        table = latencies.save_latency_table(session, demo_data.latency_table())
    names = {"search": search, "candidate": "x", "table": table}
    document = client.get("/api/v1/openapi.json").json()
    asked = 0
    for path, operations in document["paths"].items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            if parameter["in"] != "query":
                continue
            name = parameter["name"]
            query = {"model": "m", "suite": "glue"} if path.endswith("/report") else {}
            place = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "x"), path)
            answer = client.get(place, params={**query, name: "\0"})
            assert answer.status_code < 500, (path, name, answer.text)
            asked += 1
    assert asked > 50

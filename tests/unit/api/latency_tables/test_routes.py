"""Latency tables, architectures and search spaces over REST."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from api.http.schemas import Page
from api.latency_tables.schemas import (
    ArchitectureFacts,
    LatencyBuildDetail,
    LatencyBuildShape,
    LatencyTableDetail,
    LatencyTableShape,
    SpaceShape,
)
from kdnas.db.engine import Database
from kdnas.db.repository import latencies
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.search_space import SearchSpace
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_latencies, benchmark_ms
from kdnas.testing.truth import assert_shape

TABLES = "/api/v1/latency-tables"


@pytest.fixture
def table(database: Database) -> str:
    with database.write() as session:
        return latencies.save_latency_table(session, benchmark_latencies())


@pytest.mark.databases("sqlite", "postgresql")
def test_tables_are_listed_and_read_by_entry(client: TestClient, table: str) -> None:
    listed = client.get(TABLES).json()
    assert_shape(Page[LatencyTableShape], listed)
    (found,) = listed["items"]
    assert (found["id"], found["num_entries"]) == (table, len(BENCHMARK_SPACE))
    assert found["complete"]
    one = client.get(f"{TABLES}/{table}?limit=500").json()
    assert_shape(LatencyTableDetail, one)
    assert {name: one[name] for name in found} == found
    wanted = sorted(BENCHMARK_SPACE.states, key=lambda a: (benchmark_ms(a), str(a)))
    assert [row["architecture"] for row in one["entries"]["items"]] == list(map(str, wanted))
    assert one["entries"]["next_cursor"] is None
    names, cursor = [], ""
    while True:
        query = f"sort=-architecture&limit=7{cursor}"
        page = client.get(f"{TABLES}/{table}?{query}").json()["entries"]
        names += [row["architecture"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert names == sorted(map(str, BENCHMARK_SPACE.states), reverse=True)
    for unknown in ("nobody", "%00"):
        assert client.get(f"{TABLES}/{unknown}").status_code == 404


@pytest.mark.databases("sqlite", "postgresql")
def test_a_table_is_asked_for_and_its_build_followed(
    client: TestClient, database: Database, table: str
) -> None:
    answer = client.post(TABLES, json={"teacher": "minilm", "latency": {"threads": 2}})
    made = answer.json()
    assert answer.status_code == 202
    assert_shape(LatencyBuildDetail, made)
    assert (made["status"], made["done"], made["latency_table_id"]) == ("queued", None, None)
    assert made["spec"]["latency"]["threads"] == 2
    location = answer.headers["location"]
    assert client.get(location).json() == made
    with database.write() as session:
        latencies.set_built(session, made["id"], table)
    done = client.get(location).json()
    assert (done["status"], done["latency_table_id"]) == ("succeeded", table)
    assert (done["done"], done["total"]) == (100, 100)
    builds = client.get("/api/v1/latency-builds?status=succeeded").json()
    assert_shape(Page[LatencyBuildShape], builds)
    assert builds["items"] == [{key: done[key] for key in LatencyBuildShape.model_fields}]
    assert client.get("/api/v1/latency-builds?status=queued").json()["items"] == []
    assert client.get("/api/v1/latency-builds/%00").status_code == 404
    for wrong in ({"teacher": "/etc"}, {"space": {"axes": {"heads": []}}}, {"latncy": {}}):
        assert client.post(TABLES, json=wrong).status_code == 422


def test_a_build_is_paused_and_cancelled(client: TestClient) -> None:
    location = client.post(TABLES, json={"teacher": "minilm"}).headers["location"]
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        answer = client.patch(location, json={"action": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert client.get(location).json() == answer.json()
    refused = client.patch(location, json={"action": "resume"})
    assert refused.status_code == 409
    assert "is cancelled, so it cannot be resumed" in refused.json()["detail"]
    assert client.patch("/api/v1/latency-builds/x", json={"action": "pause"}).status_code == 404


def test_an_architecture_and_what_it_costs(client: TestClient, table: str) -> None:
    state = BENCHMARK_SPACE[5]
    facts = client.get(f"/api/v1/architectures/{state}?vocab_size=1000&teacher_layers=6").json()
    assert_shape(ArchitectureFacts, facts)
    assert facts["params_millions"] == count_parameters(state, EmbeddingShape(1000)) / 1e6
    assert list(facts["layer_mapping"]) == [str(i + 1) for i in range(state.layers)]
    (known,) = facts["latencies"]
    assert (known["latency_table_id"], known["latency_ms"]) == (table, benchmark_ms(state))
    deep = client.get("/api/v1/architectures/12,12,384,384,gelu?teacher_layers=6").json()
    assert (deep["layer_mapping"], deep["latencies"]) == (None, [])
    assert_shape(ArchitectureFacts, deep)
    for wrong in ("nonsense", "3,5,384,384,gelu", "3,12,384,384,tanh", "%00"):
        answer = client.get(f"/api/v1/architectures/{wrong}")
        assert answer.status_code == 422
        assert answer.json()["detail"]


def test_search_spaces(client: TestClient) -> None:
    paper = client.get("/api/v1/search-space").json()
    assert_shape(SpaceShape, paper)
    assert paper["num_states"] == 2400
    assert all(sum(counts.values()) == 2400 for counts in paper["counts"].values())
    scaled = client.get("/api/v1/search-space?kind=scaled&layers=2&hidden=384").json()
    assert_shape(SpaceShape, scaled)
    assert 0 < scaled["num_states"] < len(SearchSpace.paper())
    assert scaled["axes"]["layers"] == [1, 2]
    assert client.get("/api/v1/search-space?kind=huge").status_code == 422

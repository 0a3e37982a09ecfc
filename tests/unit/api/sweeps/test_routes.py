"""Sweeps over REST: asked for, listed, read, and their tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.http.schemas import Page
from api.sweeps.schemas import SweepDetail, SweepShape
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.repository import jobs, latencies, sweeps
from kdnas.records import Losses, MiniKDResult, Reading, SweepFacts
from kdnas.tabular.files import read_table
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_latencies
from kdnas.testing.truth import assert_shape

SWEEPS = "/api/v1/sweeps"
LOSSES = Losses(0.5, 0.1, 0.25, 0.4)


def read_one(
    database: Database, sweep_id: str, index: int, error: str | None = None
) -> Architecture:
    """Write down what a process at work would."""
    table, architecture = benchmark_latencies(), BENCHMARK_SPACE[index]
    with database.write() as session:
        latencies.save_latency_table(session, table)
        facts = SweepFacts(
            axes={axis: list(values) for axis, values in BENCHMARK_SPACE.axes.items()},
            head_multiple=1,
            num_states=len(BENCHMARK_SPACE),
            drawn=[index],
            context={"teacher": "t", "proxy": {"seed": 0, "steps": 60, "batch_size": 16}},
            latency_profile=table.profile.fingerprint,
            family=table.family,
            teacher_fingerprint=table.teacher_fingerprint,
            teacher_ms=table.teacher_ms,
            embedding={"vocab_size": 100},
            warnings=["the corpus is small"],
        )
        sweeps.set_sweep_facts(session, sweep_id, facts)
        readings = (Reading(0, LOSSES), Reading(60, LOSSES))
        result = MiniKDResult("x", architecture, LOSSES, error, 60, 1.0, readings=readings)
        sweeps.add_state(session, sweep_id, 0, index, result, None)
    return architecture


@pytest.mark.databases("sqlite", "postgresql")
def test_a_sweep_is_asked_for_listed_and_its_table_downloaded(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    asked = {"name": "all", "steps": [0, 60], "seeds": [0, 1], "states": 5}
    answer = client.post(SWEEPS, json=asked)
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert_shape(SweepDetail, made)
    assert answer.headers["Location"] == f"{SWEEPS}/{made['id']}"
    assert (made["steps"], made["seeds"], made["teacher"]) == ([0, 60], [0, 1], "minilm")
    assert made["requested"]["states"] == 5
    early = client.get(f"{SWEEPS}/all/table")
    assert early.status_code == 409
    assert "has read no state yet" in early.json()["detail"]

    architecture = read_one(database, made["id"], 3)
    read_one(database, made["id"], 4, error="out of memory")
    listed = client.get(SWEEPS).json()
    assert_shape(Page[SweepShape], listed)
    assert [row["name"] for row in listed["items"]] == ["all"]
    assert client.get(f"{SWEEPS}/all").json()["warnings"] == ["the corpus is small"]
    for ending in ("csv", "parquet"):
        sent = client.get(f"{SWEEPS}/all/table?format={ending}")
        assert sent.status_code == 200
        assert (
            sent.headers["Content-Disposition"] == f'attachment; filename="{made["id"]}.{ending}"'
        )
        path = tmp_path / f"all.{ending}"
        path.write_bytes(sent.content)
        table = read_table(path)
        assert table.architectures == (architecture,)
        assert [row.key.step for row in table.rows] == [0, 60]
        assert {row.loss for row in table.rows} == {LOSSES.relative}
    assert client.get(f"{SWEEPS}/nobody/table").status_code == 404
    assert client.get(f"{SWEEPS}/all/table?format=xlsx").status_code == 422
    assert client.patch(f"{SWEEPS}/all", json={"action": "cancel"}).json()["status"] == "cancelled"
    assert client.delete(f"{SWEEPS}/all").status_code in {200, 204}
    assert client.get(f"{SWEEPS}/all").status_code == 404


@pytest.mark.databases("sqlite", "postgresql")
def test_one_that_has_succeeded_is_resumed_for_what_failed_alone(
    client: TestClient, database: Database
) -> None:
    made = client.post(SWEEPS, json={"name": "all"}).json()
    assert made["num_failed"] == 0
    read_one(database, made["id"], 3)
    with database.write() as session:
        jobs.set_status(session, made["id"], "succeeded")
    refused = client.patch(f"{SWEEPS}/all", json={"action": "resume"})
    assert refused.status_code == 409
    assert "has succeeded, so it cannot be resumed" in refused.json()["detail"]
    read_one(database, made["id"], 4, error="out of memory")
    for path in (f"{SWEEPS}/all", f"/api/v1/jobs/{made['id']}"):
        assert client.get(path).json()["num_failed"] == 1
    client.post(SWEEPS, json={"name": "untouched"})
    for path in (SWEEPS, "/api/v1/jobs"):
        listed = client.get(path).json()["items"]
        failed = {"all": 1, "untouched": 0}
        assert {row["name"]: row["num_failed"] for row in listed} == failed
    resumed = client.patch(f"{SWEEPS}/all", json={"action": "resume"}).json()
    assert (resumed["status"], resumed["finished_at"], resumed["num_failed"]) == ("queued", None, 1)
    with database.write() as session:
        facts = sweeps.sweep_facts(session, made["id"])
        assert facts is not None
        assert facts.try_again
        sweeps.set_sweep_facts(session, made["id"], replace(facts, try_again=False))
        assert sweeps.swept(session, made["id"]) == {(0, 3)}
    assert client.get(f"{SWEEPS}/all").json()["num_failed"] == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"steps": [60, 0]}, "rising order"),
        ({"seeds": [1, 1]}, "each seed once"),
        ({"space": {"axes": {"layer": [1]}}}, "unknown axis 'layer'"),
        ({"corpus": "/etc"}, "KDNAS_DATA_ROOTS"),
        ({"without": "/etc/table.parquet"}, "without '/etc/table.parquet' is outside KDNAS_DATA"),
        ({"without": "nobody"}, "without 'nobody' is"),
        ({"backend": {"address": "ray://elsewhere:1"}}, "backend.address"),
        ({"controller": {"episodes": 1}}, "controller"),
    ],
)
def test_a_wrong_request_is_refused(
    client: TestClient, asked: dict[str, object], said: str
) -> None:
    answer = client.post(SWEEPS, json=asked)
    assert answer.status_code in {400, 422}, answer.text
    assert said.lower() in answer.text.lower()
    assert client.get(SWEEPS).json()["items"] == []

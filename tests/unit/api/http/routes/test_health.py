"""Probes and figures."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from api.http import readiness
from api.http.metrics import Metrics
from api.http.readiness import Checks, Probe, check_cluster, check_disk
from api.http.schemas import Check
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.queue import coordinators
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import distillations, searches
from kdnas.settings import Settings


@dataclass
class Worker:
    alive: bool


def figures(text: str) -> dict[str, float]:
    """``name{label=value}`` → figure."""
    return {
        sample.name
        + "".join(f"{{{k}={v}}}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _labels(labels: Mapping[str, str]) -> str:
    return "".join(f"{{{name}={value}}}" for name, value in sorted(labels.items()))


def app_of(client: TestClient) -> FastAPI:
    assert isinstance(client.app, FastAPI)
    return client.app


def test_the_process_answers(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.databases("sqlite", "postgresql")
def test_ready_once_a_coordinator_says_that_it_lives(
    client: TestClient, database: Database
) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    told = answer.json()["checks"]["coordinator"]["detail"]
    assert "no coordinator looks after the queue" in told
    owner = LeaseOwner.of_this_process("service")
    with database.write() as session:
        coordinators.note_alive(session, owner, max_running=2, num_running=0)
    answer = client.get("/readyz")
    assert answer.status_code == 200
    told = answer.json()
    assert told["ready"] is True
    assert set(told["checks"]) == {"database", "ray", "disk", "coordinator"}
    assert told["checks"]["coordinator"]["detail"] == "1 elsewhere looks after the queue"
    with database.write() as session:
        coordinators.note_gone(session, owner)
    assert client.get("/readyz").status_code == 503


def test_not_ready_when_the_coordinator_is_dead(client: TestClient) -> None:
    app_of(client).state.coordinator = Worker(alive=True)
    assert client.get("/readyz").status_code == 200
    app_of(client).state.coordinator = Worker(alive=False)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["coordinator"]["ok"] is False
    app_of(client).state.coordinator = None


def test_who_is_not_known_is_told_what_was_found_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    now = 0.0

    def check() -> Checks:
        looks.append(now)
        time.sleep(0.05)  # while others ask
        return {"disk": Check(ok=True, detail=str(len(looks)))}

    monkeypatch.setattr(readiness, "monotonic", lambda: now)

    async def ask() -> None:
        nonlocal now
        probe = Probe(check)
        found = await asyncio.gather(*(probe.look(afresh=False) for _ in range(20)))
        assert {one["disk"].detail for one in found} == {"1"}
        assert (await probe.look(afresh=True))["disk"].detail == "2"
        now = 1.0
        assert (await probe.look(afresh=False))["disk"].detail == "3"

    asyncio.run(ask())


@pytest.mark.databases("sqlite", "postgresql")
def test_not_ready_without_the_database(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Database(database.url.set(database="/nowhere/kdnas.db"))
    app_of(client).state.database = broken
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"]["detail"].startswith("database ")
    assert client.get("/healthz").status_code == 200


def test_a_cluster_that_answers_and_one_that_does_not(settings: Settings) -> None:
    assert check_cluster(settings).ok
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            assert check_cluster(replace(settings, ray_address=address)).ok
    for address in (f"127.0.0.1:{port}", "127.0.0.1:notaport", "ray://", "ray://["):
        assert not check_cluster(replace(settings, ray_address=address)).ok, address


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_disk(tmp_path / "not made").ok
    monkeypatch.setattr(readiness, "LEAST_FREE_BYTES", 2**60)
    full = check_disk(tmp_path)
    assert not full.ok
    assert "free at least 1 GiB" in (full.detail or "")


@pytest.mark.databases("sqlite", "postgresql")
def test_figures(client: TestClient, database: Database) -> None:
    with database.write() as session:
        searches.create_search(session, {}, owner_kind="service")
        distillations.create_distillation(
            session, {}, Architecture.parse("3,12,288,768,gelu"), name="d", owner_kind="service"
        )
    client.get("/api/v1/session")
    client.get("/api/v1/schemas/search")
    client.get("/nothing/at/all")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = figures(answer.text)
    assert found["kdnas_searches{status=queued}"] == 1
    assert found["kdnas_searches{status=running}"] == 0
    assert found["kdnas_distillations{status=queued}"] == 1
    assert found["kdnas_database_up"] == 1
    assert found["kdnas_candidates{status=succeeded}"] == 0
    assert found["kdnas_event_clients"] == 0
    count = "kdnas_http_request_seconds_count{method=GET}"
    assert found[f"{count}{{route=/api/v1/session}}{{status=200}}"] == 1
    assert found[f"{count}{{route=/api/v1/schemas/{{name}}}}{{status=200}}"] == 1
    assert found[f"{count}{{route=none}}{{status=404}}"] == 1


def test_figures_are_counted_anew_after_a_while(database: Database) -> None:
    now = 0.0
    metrics = Metrics(database, lambda: 3, lambda: now)

    def queued() -> Any:
        return figures(metrics.text().decode())["kdnas_searches{status=queued}"]

    assert queued() == 0
    with database.write() as session:
        searches.create_search(session, {})
    assert queued() == 0
    now = 11.0
    assert queued() == 1


def test_figures_without_the_database(client: TestClient, database: Database) -> None:
    metrics = Metrics(Database(database.url.set(database="/nowhere/kdnas.db")), lambda: 0)
    found = figures(metrics.text().decode())
    assert found["kdnas_database_up"] == 0
    assert "kdnas_searches{status=queued}" not in found

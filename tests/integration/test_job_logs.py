"""What workers on a cluster print and how they fail, read from the log of the job."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from pathlib import Path

import pytest

from api.jobs import children
from api.jobs.children import Child, child_environment
from api.logs.job_log import log_so_far
from kdnas.architecture import Architecture
from kdnas.db.queue.claims import Claim
from kdnas.db.queue.leases import LeaseOwner
from kdnas.records import MiniKDRequest
from kdnas.settings import Settings
from kdnas.testing.tiny_lab import make_tiny_lab
from workers.backend import BackendPlan

pytestmark = [pytest.mark.ray, pytest.mark.slow]

AS_A_RUNNER = """
import os
from api.logs.service_log import configure_logs
configure_logs()
import ray
import workers.cluster
from workers.cluster import cluster
workers.cluster.LAST_WORDS_SECONDS = 20  # what brings them may have begun after the worker
"""
TALKS_AND_FAILS = (
    AS_A_RUNNER
    + """
@ray.remote
def train():
    import sys, warnings
    print("a worker prints")
    warnings.warn("a worker warns")
    print("a worker says the token", "a-secret-of-the-environment", file=sys.stderr)
    raise RuntimeError("a worker fails")

with cluster(None, 1):
    try:
        ray.get(train.remote())
    except RuntimeError:
        print("the driver knows")
os._exit(1)
"""
)
CANDIDATE_FAILS = (
    AS_A_RUNNER
    + """
import pickle
from kdnas.errors import KdnasError
from workers.ray_backend import RayBackend
with open({path!r}, "rb") as file:
    context, plan, requests = pickle.load(file)
with cluster(None, 1):
    backend = RayBackend(context, plan)
    try:
        list(backend.run(requests))
    except KdnasError as error:
        print("the driver knows:", error)
os._exit(1)
"""
)


@pytest.fixture
def settings(tmp_path: Path, ray_home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(ray_home))
    monkeypatch.setenv("WORKERS_TOKEN", "a-secret-of-the-environment")
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")})


def log_of(monkeypatch: pytest.MonkeyPatch, settings: Settings, code: str) -> list[str]:
    monkeypatch.setattr(children, "_PYTHON", (sys.executable, "-c", code))
    claim = Claim(
        "01job", "search", "name", LeaseOwner.of_this_process("service", "claim"), {}, False
    )
    child = Child.start("search", claim, child_environment(settings), settings)
    child.process.wait(200)
    child.forget()
    assert child.output.wait(30)
    return log_so_far(settings, "01job", has_ended=True).dump().decode().splitlines()


def test_what_a_worker_prints_arrives_with_its_process(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    lines = log_of(monkeypatch, settings, TALKS_AND_FAILS)
    of_worker = [line for line in lines if line.startswith("(train pid=")]
    said = [line.partition(") ")[2] for line in of_worker]
    assert "a worker prints" in said
    assert any("UserWarning: a worker warns" in line for line in said)
    assert "a worker says the token ***" in said
    assert "the driver knows" in lines


def test_a_candidate_that_fails_tells_where(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    lab = make_tiny_lab(tmp_path / "lab")
    work = (
        lab.context(steps=1),
        BackendPlan(1, 1, 1, "cpu", 1.0, lab.store.url),
        [MiniKDRequest("c0", Architecture.parse("2,4,48,96,gelu"))],
    )
    (tmp_path / "work.pickle").write_bytes(pickle.dumps(work))
    shutil.rmtree(lab.store.fetch("corpus", lab.corpus.fingerprint))
    code = CANDIDATE_FAILS.format(path=str(tmp_path / "work.pickle"))
    lines = log_of(monkeypatch, settings, code)
    (known,) = [line for line in lines if line.startswith("the driver knows: ")]
    assert lab.corpus.fingerprint in known
    told = [json.loads(line) for line in lines if line.startswith("{")]
    (failed,) = [entry for entry in told if entry["logger"] == "workers.ray_backend"]
    assert failed["event"].startswith("worker-1 failed: ")
    assert "Traceback" in failed["event"] or 'File "' in failed["event"]
    assert "mini_kd.py" in failed["event"]

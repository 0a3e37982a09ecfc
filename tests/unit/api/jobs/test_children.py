"""Processes of the coordinator: a local cluster that starts, does not, or takes too long."""

from __future__ import annotations

import sys
import time

import pytest

from api.jobs import children
from api.jobs.children import LocalCluster

SILENT = "import sys; sys.stdin.read(); import time; time.sleep(60)"
"""Says nothing, and does not end when its stdin closes."""
TALKATIVE = """
import sys
print('{"KDNAS_RAY_ADDRESS": "somewhere"}', flush=True)
print("x" * 10**6, flush=True)
sys.stdin.read()
"""


def start(monkeypatch: pytest.MonkeyPatch, code: str) -> LocalCluster:
    monkeypatch.setattr(children, "_PYTHON", (sys.executable, "-c", code))
    return LocalCluster({})


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_cluster_that_does_not_start_is_given_up(
    monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    monkeypatch.setattr(children, "CLUSTER_START_SECONDS", 60.0 if gives_up else 0.5)
    cluster, began = start(monkeypatch, SILENT), time.monotonic()
    assert cluster.variables(lambda: gives_up) == {}
    assert time.monotonic() - began < 30  # of the 60 that it would go on for
    assert cluster._process is None


def test_a_cluster_that_ends_at_once_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, "import sys; sys.exit(3)").variables(lambda: False) == {}


def test_a_cluster_serves_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else it prints is read, or it would wait for ever for somebody to do so."""
    cluster = start(monkeypatch, TALKATIVE)
    assert cluster.variables(lambda: False) == {"KDNAS_RAY_ADDRESS": "somewhere"}
    process = cluster._process
    assert cluster.variables(lambda: False) == {"KDNAS_RAY_ADDRESS": "somewhere"}
    assert cluster._process is process
    assert process is not None
    cluster.stop(30.0)
    assert process.returncode == 0
    assert cluster._process is None


def test_a_cluster_that_died_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = start(monkeypatch, TALKATIVE)
    cluster.variables(lambda: False)
    first = cluster._process
    assert first is not None
    first.kill()
    first.wait(30)
    assert cluster.variables(lambda: False) == {"KDNAS_RAY_ADDRESS": "somewhere"}
    assert cluster._process is not first
    cluster.stop(30.0)

"""The backend on Ray, where no cluster is needed to see what it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdnas.errors import OutOfReachError
from workers import ray_backend
from workers.backend import BackendPlan
from workers.ray_backend import RayBackend

CONTEXT: Any = None


def test_a_cluster_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"NodeID": "ours", "Alive": True}, {"NodeID": "other", "Alive": True}]
    asked: list[str] = []

    def tell() -> list[dict[str, Any]]:
        asked.append("nodes")
        return nodes

    here = SimpleNamespace(get_node_id=lambda: "ours")
    monkeypatch.setattr(ray_backend.ray, "nodes", tell)
    monkeypatch.setattr(ray_backend.ray, "get_runtime_context", lambda: here)
    backend = RayBackend(CONTEXT, BackendPlan(1, 1, 1, "cpu", 1.0, "memory://"))
    backend._check_cluster()
    assert asked == []  # it looks now and then only
    monkeypatch.setattr(ray_backend, "LOOK_SECONDS", 0.0)
    backend._check_cluster()
    assert asked == ["nodes"]
    nodes[0]["Alive"] = False
    with pytest.raises(OutOfReachError, match="lost the node by which it is reached from here"):
        backend._check_cluster()

"""Where students of a search or a sweep are trained: on which cluster, if on one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kdnas.settings import Settings
from kdnas.specs.search import BackendSpec


def needs_cluster(spec: Mapping[str, Any]) -> bool:
    """Whether a request goes to Ray and names no cluster itself."""
    backend = spec.get("backend") or {}
    return backend.get("name", "ray") == "ray" and not backend.get("address")


def cluster_address(backend: BackendSpec, settings: Settings) -> str | None:
    """Of a running cluster; None where it goes to none, or to one that is started for it."""
    return (backend.address or settings.ray_address) if backend.name == "ray" else None


def cluster_for(backend: BackendSpec, settings: Settings) -> AbstractContextManager[object]:
    """A connection to the cluster on which students are trained, if it is one."""
    if backend.name != "ray":
        return nullcontext()
    from workers.cluster import cluster  # loads Ray

    return cluster(cluster_address(backend, settings))

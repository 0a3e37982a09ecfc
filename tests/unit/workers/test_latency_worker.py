from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workers.latency
from kdnas.errors import LatencyError
from kdnas.latency.device_lock import measuring_lock
from kdnas.specs.search import LatencySpec


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))


def test_the_build_has_the_machine_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def build(handle: Any, space: Any, profile: Any, **options: Any) -> str:
        given.update(options)
        with pytest.raises(LatencyError, match="still taken"), measuring_lock(wait_seconds=0):
            pass
        return "table"

    monkeypatch.setattr(workers.latency, "build_latency_table", build)
    spec = LatencySpec(budget_seconds=7, exhaustive=True)
    arguments: Any = (None, None, None)
    assert workers.latency.build_table(*arguments, spec, seed=3) == "table"
    assert (given["budget_seconds"], given["exhaustive"], given["seed"]) == (7, True, 3)


def test_it_waits_for_its_turn_and_says_so() -> None:
    messages: list[str] = []
    arguments: Any = (None, None, None)
    with measuring_lock(), pytest.raises(LatencyError, match="still taken"):
        workers.latency.build_table(
            *arguments, LatencySpec(), wait_seconds=0.1, on_wait=messages.append
        )
    assert len(messages) == 1

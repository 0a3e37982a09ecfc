from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.errors import BackendError
from kdnas.latency.device_lock import measuring_lock
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    CandidateFinished,
    GroupProgress,
    MiniKDRequest,
    MiniKDResult,
)
from kdnas.testing.backend_contract import RungContract, check_events
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab
from workers import backend as backend_module
from workers.backend import BackendPlan, LocalBackend, build_backend, out_of_memory
from workers.cluster import cluster

STUDENTS = tuple(
    Architecture.parse(text)
    for text in ("2,4,48,96,gelu", "1,2,24,96,relu", "3,3,36,64,silu", "1,4,48,48,gelu")
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for whatever is being measured on this machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def plan(lab: TinyLab, group_size: int = 3) -> BackendPlan:
    return BackendPlan(1, 1, group_size, "cpu", 1.0, lab.store.url)


class TestLocalBackend(RungContract):
    architectures = STUDENTS

    @pytest.fixture(autouse=True)
    def _take_lab(self, lab: TinyLab) -> None:
        self.lab = lab

    def make(self) -> LocalBackend:
        return LocalBackend(self.lab.context(steps=3), plan(self.lab))

    def test_the_machine_is_free_after_a_close_in_the_middle(self) -> None:
        backend = self.make()
        events = backend.run(self.requests())
        while not isinstance(event := next(events), GroupProgress):
            pass
        assert event.step == 0  # told as soon as it is at work, while starts are made
        backend.close()
        with measuring_lock(wait_seconds=0):
            assert list(events) == []

    def test_it_says_for_whom_it_waits_and_may_be_closed_meanwhile(self) -> None:
        backend = self.make()
        with measuring_lock(wait_seconds=0):
            events = backend.run(self.requests())
            assert isinstance(next(events), AttemptStarted)
            told = [next(events), next(events)]
            backend.close()
        for event in told:
            assert isinstance(event, GroupProgress)
            assert event.step == 0
            assert event.waits.startswith("waiting for a latency measurement on this machine to")
        with measuring_lock(wait_seconds=0):
            assert list(events) == []

    def test_the_number_of_threads_is_put_back(self) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            assert list(self.make().run(self.requests()))
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)


class Hungry:
    """A worker whose memory is too small for groups above a size, and never for some students."""

    name = "hungry"

    def __init__(self, largest: int, never: frozenset[str], error: Exception) -> None:
        self._largest, self._never, self._error = largest, never, error

    def train(self, group: tuple[MiniKDRequest, ...]) -> Iterator[MiniKDResult]:
        for position, request in enumerate(group):
            if position == 1 and len(group) > self._largest:
                raise self._error
            if request.candidate_id in self._never:
                raise self._error
            yield MiniKDResult(request.candidate_id, request.architecture, None, "trained", 1, 0.1)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_group_that_does_not_fit_is_tried_in_smaller_groups(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert out_of_memory(error)
    hungry = Hungry(2, frozenset({"c5"}), error)
    monkeypatch.setattr(backend_module, "MiniKDWorker", lambda *_: hungry)
    requests = [MiniKDRequest(f"c{i}", STUDENTS[0]) for i in range(8)]
    events = list(LocalBackend(lab.context(), plan(lab, 8)).run(requests))
    check_events(requests, events)
    groups = [len(e.candidate_ids) for e in events if isinstance(e, AttemptStarted)]
    assert groups[0] == 8
    assert max(groups[1:]) == 4
    interrupted = [e for e in events if isinstance(e, AttemptInterrupted)]
    assert interrupted
    assert {e.reason for e in interrupted} == {"out of memory"}
    results = {e.result.candidate_id: e.result for e in events if isinstance(e, CandidateFinished)}
    assert results["c5"].error == "gave up after 3 attempts; the last one: out of memory"
    others = {r.error for name, r in results.items() if name != "c5"}
    assert others == {"trained"}


def test_any_other_error_is_not_hidden(lab: TinyLab, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Hungry(0, frozenset(), RuntimeError("shapes do not match"))
    monkeypatch.setattr(backend_module, "MiniKDWorker", lambda *_: broken)
    requests = [MiniKDRequest(f"c{i}", STUDENTS[0]) for i in range(2)]
    with pytest.raises(RuntimeError, match="shapes"):
        list(LocalBackend(lab.context(), plan(lab)).run(requests))


def test_a_backend_is_built_by_name(lab: TinyLab) -> None:
    assert isinstance(build_backend("local", lab.context(), plan(lab)), LocalBackend)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense", ":6379"])
def test_a_wrong_ray_address_is_refused_at_once(address: Any) -> None:
    with (
        pytest.raises(BackendError, match=rf"cluster at '{address}' did not answer"),
        cluster(address),
    ):
        pass

"""The parts of data-parallel distillation that need no cluster; the rest is in integration."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from kdnas.errors import LatencyError, NoRoomError, SpecError, StoreError
from kdnas.latency.device_lock import measuring_lock
from kdnas.specs.distillation import DistillationSpec
from workers.distillation import (
    _GroupDiedError,
    _meaning,
    _resources,
    _StoppedWaitingError,
    _Turns,
    distil_in_parallel,
)

NODES = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}]


def spec() -> DistillationSpec:
    return DistillationSpec.model_validate(
        {"architecture": "2,4,36,96,gelu", "training": {"num_workers": 2, "threads": 3}}
    )


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))


def test_a_measurement_has_its_turn_every_so_many_steps() -> None:
    measured = threading.Event()

    def measure() -> None:
        with measuring_lock():
            measured.set()

    with _Turns(steps=3, end=None) as turns:
        turns.begin()
        with pytest.raises(LatencyError), measuring_lock(wait_seconds=0):
            pass
        thread = threading.Thread(target=measure)
        thread.start()
        turns.step()
        turns.step()
        assert not measured.wait(2)
        turns.step()  # comes back when the measurement is over
        assert measured.is_set()
        thread.join()
        with pytest.raises(LatencyError), measuring_lock(wait_seconds=0):
            pass
    with measuring_lock(wait_seconds=0):
        pass


class End:
    """The worker's end of a line whose driver wants an end after two looks."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.looks = 0

    def tell(self, text: str) -> None:
        self.told.append(text)

    def should_stop(self) -> bool:
        self.looks += 1
        return self.looks > 2


def test_a_wait_for_a_measurement_is_told_and_ends_at_once() -> None:
    end: Any = End()
    stopped = pytest.raises(_StoppedWaitingError)
    with measuring_lock(wait_seconds=0), _Turns(3, end) as turns, stopped:
        turns.begin()
    assert (end.looks, len(end.told)) == (3, 1)
    assert end.told[0].startswith("waiting for a latency measurement on this machine to end: ")


def test_workers_that_do_not_speak_for_their_node_hold_nothing() -> None:
    with _Turns(steps=1, end=None) as turns:
        turns.step()
        with measuring_lock(wait_seconds=0):
            pass


@pytest.mark.parametrize(
    ("num_workers", "threads", "cores"),
    [(1, 1, 1), (2, 3, 2), (1, 8, 4), (3, 4, 2), (12, 1, 0.5), (5, 4, 1)],
)
def test_no_worker_reserves_more_cores_than_there_are(
    num_workers: int, threads: int, cores: float
) -> None:
    assert _resources(NODES, num_workers, threads, on_gpu=False) == {"CPU": cores}


def test_what_is_reserved_fits_onto_the_nodes() -> None:
    """Of two nodes with three cores each, three workers of two cores would leave one out."""
    assert _resources([{"CPU": 3.0}] * 2, 3, 2, on_gpu=False) == {"CPU": 1.5}
    for nodes in ([{"CPU": 7.0}, {"CPU": 3.0}, {}], [{"CPU": 0.5}, {"CPU": 1.0}]):
        for num_workers in range(1, 12):
            share = _resources(nodes, num_workers, 4, on_gpu=False)["CPU"]
            assert 0 < share <= 4
            assert sum(node.get("CPU", 0) // share for node in nodes) >= num_workers
    with pytest.raises(NoRoomError, match="no node of the Ray cluster offers cores"):
        _resources([{}, {"CPU": 0.0}], 1, 1, on_gpu=False)


def test_each_worker_has_a_gpu_or_is_refused() -> None:
    assert _resources(NODES, 1, 1, on_gpu=True) == {"CPU": 1, "GPU": 1}
    with pytest.raises(NoRoomError, match="num_workers 2 need a GPU each, and the cluster has 1"):
        _resources(NODES, 2, 1, on_gpu=True)


def test_what_an_error_of_ray_train_comes_down_to() -> None:
    ours, other = StoreError("no space"), RuntimeError("Connection closed\n by peer")
    assert _meaning(WorkerGroupError("", {0: other, 1: ours}), spec()) is ours
    collateral = _meaning(WorkerGroupError("", {0: other}), spec())
    assert isinstance(collateral, _GroupDiedError)
    assert str(collateral) == "Connection closed by peer"
    full = _meaning(ControllerError(WorkerGroupStartupTimeoutError(2)), spec())
    assert isinstance(full, NoRoomError)
    assert "no room for 2 workers of 3 threads each; wait until" in str(full)
    for error in (ControllerError(other), RayActorError()):
        assert isinstance(_meaning(error, spec()), _GroupDiedError)
    assert _meaning(other, spec()) is other  # a mistake of the program stays one


def test_checkpoints_in_memory_are_refused(tmp_path: Path) -> None:
    told: list[Any] = []
    with pytest.raises(SpecError, match="out of reach of other processes"):
        distil_in_parallel(spec(), str(tmp_path), "memory://run", told.append)
    assert told == []

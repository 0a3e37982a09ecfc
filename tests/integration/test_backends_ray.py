"""The backend on a real local Ray cluster: the contract, equal losses, killed workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdnas.architecture import Architecture
from kdnas.errors import NotFoundError
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    Losses,
    MiniKDRequest,
)
from kdnas.testing.backend_contract import RungContract, check_events
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab
from workers.backend import BackendPlan, LocalBackend
from workers.cluster import cluster

if TYPE_CHECKING:
    from workers.ray_backend import RayBackend

pytestmark = pytest.mark.ray

STUDENTS = tuple(
    Architecture.parse(text) for text in ("2,4,48,96,gelu", "1,2,24,96,relu", "3,3,36,64,silu")
)
CORES = 2


@pytest.fixture(scope="module")
def ray_cluster(ray_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A small local cluster that leaves the user's home alone."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(ray_home))
        patch.setenv("KDNAS_HOME", str(home / "kdnas"))
        patch.setenv("KDNAS_LOCKS", str(home))  # locks of its own: nobody measures in there
        with cluster(None, CORES):
            yield


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def ray_backend(
    lab: TinyLab, steps: int = 4, num_workers: int = 2, threads: int = 1, group_size: int = 2
) -> RayBackend:
    from workers.ray_backend import RayBackend

    plan = BackendPlan(num_workers, threads, group_size, "cpu", 1.0, lab.store.url)
    return RayBackend(lab.context(steps=steps, dropout=0.1), plan)


def requests(count: int) -> list[MiniKDRequest]:
    return [MiniKDRequest(f"c{i}", STUDENTS[i % len(STUDENTS)]) for i in range(count)]


def losses_of(events: Sequence[BackendEvent]) -> dict[str, Losses | None]:
    return {
        e.result.candidate_id: e.result.losses for e in events if isinstance(e, CandidateFinished)
    }


@pytest.mark.usefixtures("ray_cluster")
class TestRayBackend(RungContract):
    architectures = STUDENTS

    @pytest.fixture(autouse=True)
    def _take_lab(self, lab: TinyLab) -> None:
        self.lab = lab

    def make(self) -> RayBackend:
        return ray_backend(self.lab, num_workers=1)


@pytest.mark.usefixtures("ray_cluster")
def test_losses_are_equal_to_the_bit_on_ray_and_here(lab: TinyLab) -> None:
    work = requests(3)
    local = LocalBackend(
        lab.context(steps=4, dropout=0.1), BackendPlan(1, 1, 3, "cpu", 1.0, lab.store.url)
    )
    here = losses_of(list(local.run(work)))
    backend = ray_backend(lab)
    try:
        assert losses_of(list(backend.run(work))) == here
    finally:
        backend.close()
    assert None not in here.values()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_killed_workers_give_their_students_back(lab: TinyLab) -> None:
    """Whoever trains c0 is killed: c0 fails after three attempts, the others are all trained."""
    work, events = requests(4), []
    backend = ray_backend(lab, steps=300, num_workers=1, group_size=4)
    try:
        for event in backend.run(work):
            events.append(event)
            if isinstance(event, GroupProgress) and "c0" in event.candidate_ids:
                with suppress(ProcessLookupError):  # killed at the step before
                    os.kill(int(event.worker.rpartition(":")[2]), signal.SIGKILL)
    finally:
        backend.close()
    check_events(work, events)
    sizes = [len(e.candidate_ids) for e in events if isinstance(e, AttemptStarted)]
    assert sizes[:3] == [4, 2, 1]
    interrupted = [e for e in events if isinstance(e, AttemptInterrupted)]
    assert interrupted[0].candidate_ids == ("c0", "c1", "c2", "c3")
    assert all("the worker died" in e.reason for e in interrupted)
    results = {e.result.candidate_id: e.result for e in events if isinstance(e, CandidateFinished)}
    assert results["c0"].error
    assert results["c0"].error.startswith("gave up after 3 attempts; the last one: the worker died")
    assert all(results[f"c{i}"].succeeded for i in (1, 2, 3))


@pytest.mark.usefixtures("ray_cluster")
def test_more_workers_and_threads_than_cores_do_not_wait_for_ever(lab: TinyLab) -> None:
    backend = ray_backend(lab, steps=1, num_workers=2, threads=CORES + 5, group_size=1)
    work = requests(2)
    try:
        check_events(work, list(backend.run(work)))
    finally:
        backend.close()


@pytest.mark.usefixtures("ray_cluster")
def test_an_error_of_ours_comes_back_as_what_it_is(lab: TinyLab) -> None:
    from workers.ray_backend import RayBackend

    lost = replace(lab.context(), teacher="0" * 16)
    backend = RayBackend(lost, BackendPlan(1, 1, 2, "cpu", 1.0, lab.store.url))
    try:
        with pytest.raises(NotFoundError, match="there is no teacher '0000000000000000'"):
            list(backend.run(requests(1)))
    finally:
        backend.close()


SIGNALS = """
import signal
from workers.cluster import cluster

def mine(number, frame):
    pass

signal.signal(signal.SIGTERM, mine)
before = signal.getsignal(signal.SIGINT)
with cluster(None, 1):
    assert signal.getsignal(signal.SIGTERM) is mine, "replaced inside"
    assert signal.getsignal(signal.SIGINT) is before
    with cluster(None, 1):
        pass
assert signal.getsignal(signal.SIGTERM) is mine, "replaced afterwards"
assert signal.getsignal(signal.SIGINT) is before
print("kept")
"""


@pytest.mark.usefixtures("ray_cluster")
def test_signal_handlers_are_ours_in_the_cluster_and_after_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "kept", done.stderr

"""Data-parallel distillation on a real local Ray cluster: equal curves, kills, stops, errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, FullProgress, load_distilled
from kdnas.errors import BackendError, StoreError
from kdnas.latency.device_lock import measuring_lock
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab
from workers.cluster import cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STUDENT = "2,4,36,96,gelu"
STEPS, EVERY = 720, 20
"""Long enough for three breaks in the middle."""
ORDER_OF_SUMS = 5e-6
"""Relative difference of float32 losses whose sums were taken in another order, over 30 steps."""


@pytest.fixture(scope="module")
def home(ray_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of its own: nothing may be written there but what is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(ray_home))
        patch.setenv("KDNAS_HOME", str(home / "kdnas"))
        patch.setenv("KDNAS_LOCKS", str(home / "locks"))
        yield home


@pytest.fixture(scope="module")
def ray_cluster(home: Path) -> Iterator[None]:
    with cluster(None, 2):
        yield


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def spec_of(lab: TinyLab, **training: Any) -> DistillationSpec:
    settings = {"steps": STEPS, "checkpoint_every": EVERY, "dropout": 0.1, "num_workers": 2}
    return lab.distillation(
        STUDENT, **{**settings, "device": "cpu", "dtype": "float32", **training}
    )


def distil(
    lab: TinyLab,
    spec: DistillationSpec,
    place: Path | str,
    on_progress: Callable[[FullProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    from workers.distillation import distil_in_parallel

    return distil_in_parallel(spec, lab.store.url, str(place), on_progress, should_stop)


def result(lab: TinyLab, spec: DistillationSpec, place: Path) -> Distilled:
    found = load_distilled(spec, lab.teacher, Checkpoints(str(place)))
    assert found is not None
    return found


def newest_weights(place: Path) -> dict[str, torch.Tensor]:
    state = Checkpoints(str(place)).load()
    assert state is not None
    weights: dict[str, torch.Tensor] = state["trainer"]["student"]
    return weights


def assert_same(lab: TinyLab, spec: DistillationSpec, place: Path, other: Path) -> None:
    one, two = newest_weights(place), newest_weights(other)
    assert all(torch.equal(one[name], two[name]) for name in one)
    found, expected = result(lab, spec, place), result(lab, spec, other)
    assert found.finished
    assert found.curve == expected.curve
    assert found.held_out == expected.held_out


def worker_pids(driver: int | None = None) -> list[int]:
    """Processes of the group's workers, which Ray names after their class; no other cluster's."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::RayTrainWorker" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def undisturbed(
    lab: TinyLab, ray_cluster: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[FullProgress]]:
    place = tmp_path_factory.mktemp("undisturbed") / "run"
    told: list[FullProgress] = []

    def tell(progress: FullProgress) -> None:
        told.append(progress)
        if progress.step == STEPS - EVERY:
            # As on a busy database, until after the end of the group.
            group = next((t for t in threading.enumerate() if t.name == "ray-train"), None)
            if group is not None:  # it may have ended before this was handed over
                group.join(120)
                assert not group.is_alive()

    assert distil(lab, spec_of(lab), place, tell) == STEPS
    return place, told


def test_two_workers_learn_what_one_does(
    lab: TinyLab, ray_cluster: None, tmp_path: Path, ray_home: Path
) -> None:
    spec = spec_of(lab, dropout=0.0, steps=30)
    assert distil(lab, spec, tmp_path / "two") == 30
    alone = Checkpoints(str(tmp_path / "one"))
    FullDistillation(spec, lab.teacher, lab.corpus, lab.store, alone, "cpu", "float32").run()
    expected, found = result(lab, spec, tmp_path / "one"), result(lab, spec, tmp_path / "two")
    losses = [point.loss for point in expected.curve]
    assert [point.loss for point in found.curve] == pytest.approx(losses, rel=ORDER_OF_SUMS)
    assert found.best.losses.relative == pytest.approx(
        expected.best.losses.relative, rel=ORDER_OF_SUMS
    )
    assert not (ray_home / "ray_results").exists()


def test_progress_reaches_the_driver(
    lab: TinyLab, undisturbed: tuple[Path, list[FullProgress]]
) -> None:
    place, told = undisturbed
    found = result(lab, spec_of(lab), place)
    assert tuple(p.held_out for p in told if p.held_out) == found.held_out
    assert sum((p.points for p in told), ()) == found.curve
    assert all(p.total_steps == STEPS for p in told)
    assert all((p.tokens_per_second > 0) == (p.step > 0) for p in told)
    assert (told[0].step, told[-1].step) == (0, STEPS)


def test_an_error_of_ours_comes_out_as_itself_and_at_once(
    lab: TinyLab, ray_cluster: None, tmp_path: Path
) -> None:
    """Also of the first worker alone, whose disk takes nothing, while the other one waits."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=f"checkpoint of step {EVERY} could not be written"):
        distil(lab, spec_of(lab), tmp_path / "file" / "run")


def test_workers_that_keep_dying_are_given_up(
    lab: TinyLab, ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.distillation.MAX_DEATHS", 1)
    spec = spec_of(lab, checkpoint_every=10_000, steps=10_000)

    def kill_all(progress: FullProgress) -> None:
        for pid in worker_pids():
            with suppress(ProcessLookupError):  # killed at the step before
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(BackendError, match=r"died \d times without getting beyond step 0 .*resume"):
        distil(lab, spec, tmp_path / "run", kill_all)


def test_what_goes_wrong_in_the_driver_ends_the_workers(
    lab: TinyLab, ray_cluster: None, tmp_path: Path
) -> None:
    def fail(progress: FullProgress) -> None:
        raise ZeroDivisionError("the screen is gone")

    with pytest.raises(ZeroDivisionError, match="the screen is gone"):
        distil(lab, spec_of(lab, steps=100_000, checkpoint_every=10_000), tmp_path / "run", fail)
    deadline = time.monotonic() + 30  # they were killed, and nobody waits for a killed one
    while worker_pids():
        assert time.monotonic() < deadline
        time.sleep(0.05)


DRIVER = """
import sys
from pathlib import Path
from kdnas.specs.distillation import DistillationSpec
from workers.distillation import distil_in_parallel

spec = DistillationSpec.model_validate_json(sys.argv[1])
told = lambda progress: print("step", progress.step, flush=True)
distil_in_parallel(spec, sys.argv[2], sys.argv[3], told)
"""


def test_however_a_run_is_broken_off_it_ends_with_the_same_weights(
    lab: TinyLab, tmp_path: Path, home: Path, undisturbed: tuple[Path, list[FullProgress]]
) -> None:
    """The driver is killed, the next one stopped, and a worker of the third killed."""
    spec, place = spec_of(lab), tmp_path / "run"

    def newest() -> int:
        return max(Checkpoints(str(place)).steps(), default=0)

    # With a cluster of its own, whose chatter stays off the screen, and in a folder whose name has
    # a space: Ray leaves the path of its Python unquoted, and would wait for its workers for ever.
    (tmp_path / "a space").symlink_to(sys.prefix)
    python = tmp_path / "a space" / "bin" / "python"
    driver = subprocess.Popen(
        [python, "-c", DRIVER, spec.model_dump_json(), lab.store.url, str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 200
    while not newest() and time.monotonic() < deadline:
        time.sleep(0.02)
    # Workers live on for some seconds without their driver, and a quick machine would be through by
    # then: while somebody measures they stand still at their next turn, and still find themselves
    # alone.
    with measuring_lock(200):
        workers = worker_pids(driver.pid)
        assert len(workers) == 2
        os.kill(driver.pid, signal.SIGKILL)
        _, errors = driver.communicate()
        assert errors == ""
        deadline = time.monotonic() + 100
        while any(map(is_alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(is_alive, workers))
    left = newest()
    assert EVERY <= left < STEPS

    stopped = distil(lab, spec, place, should_stop=lambda: True)
    assert left < stopped == newest() < STEPS

    killed: list[int] = []

    def kill_one(progress: FullProgress) -> None:
        if progress.step >= stopped + EVERY and not killed:
            pids = worker_pids()
            assert len(pids) == 2
            killed.append(pids[-1])
            os.kill(killed[0], signal.SIGKILL)

    assert distil(lab, spec, place, kill_one) == STEPS
    assert killed
    assert_same(lab, spec, place, undisturbed[0])

"""Workers on a cluster that wait for a measurement: they say so, and end when they are to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdnas.evaluation.finetuning.grid import grid_points
from kdnas.evaluation.settings import FinetuneSettings, Grid
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.task import own_task
from kdnas.latency.device_lock import measuring_lock
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_lab import make_tiny_lab
from kdnas.testing.tiny_tasks import WORDS
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.cluster import cluster
from workers.distillation import distil_in_parallel
from workers.finetuning import carried_to
from workers.grid import GridWork, try_grid

pytestmark = pytest.mark.slow

SOON_SECONDS = 240.0
"""Enough for a worker to start on a busy machine and to end; a measurement here has no end."""


@pytest.fixture(scope="module", autouse=True)
def _cluster(ray_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(ray_home))
        patch.setenv("KDNAS_HOME", str(tmp_path_factory.mktemp("home")))
        with cluster(None, 2):
            yield


def check(told: list[str]) -> None:
    assert told[0].startswith("waiting for a latency measurement on this machine to end: ")


def test_trials_of_a_grid(tmp_path: Path) -> None:
    model = prepare_teacher(str(make_tiny_teacher(tmp_path / "model", words=WORDS)))
    examples = [TextExample(str(n), WORDS[n % 4], None, "ab"[n % 2]) for n in range(40)]
    task = own_task("mine", "classification")
    data = TaskData(task, examples, {"test": examples}, ("a", "b"), True, ("made up",))
    settings = FinetuneSettings(1e-3, 1, grid=Grid((1e-3, 1e-4), (1.0,)))
    points = grid_points(settings, len(examples))
    told: list[str] = []
    with measuring_lock(wait_seconds=0):
        carried = carried_to(None, model, data, f"file://{tmp_path}/store")
        work = GridWork(points, "cpu", 1, 2, carried, settings)
        tried = try_grid(
            work, (), tmp_path / "grid", lambda _: None, lambda: bool(told), told.append
        )
    assert not tried
    check(told)


def test_workers_of_a_distillation(tmp_path: Path) -> None:
    lab = make_tiny_lab(tmp_path / "lab")
    options = {"steps": 20, "checkpoint_every": 5, "num_workers": 2, "threads": 1}
    spec = lab.distillation("2,4,24,96,gelu", device="cpu", dtype="float32", **options)
    told: list[str] = []
    stopping: list[float] = []

    def should_stop() -> bool:
        if told and not stopping:
            stopping.append(time.monotonic())
        return bool(told)

    with measuring_lock(wait_seconds=0):
        url = lab.store.url
        done = distil_in_parallel(
            spec, url, str(tmp_path / "run"), should_stop=should_stop, on_wait=told.append
        )
    assert done == 0
    assert time.monotonic() - stopping[0] < SOON_SECONDS
    check(told)

"""Strategies as a search algorithm of a real Ray Tune on a small local cluster."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

from controller.adapters.ray_tune import KdnasSearcher
from controller.adapters.rounds import StudentSearch
from kdnas.architecture import Architecture
from kdnas.specs.search import SearchSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    TEACHER,
    benchmark_losses,
    benchmark_ms,
    benchmark_params,
)
from workers.cluster import cluster

pytestmark = pytest.mark.ray

CORES = 2


@pytest.fixture(scope="module", autouse=True)
def _cluster(ray_home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(ray_home))
        with cluster(None, CORES):
            yield


def search(**spec: Any) -> StudentSearch:
    wanted = {"controller": {"candidates": 4}, **spec}
    return StudentSearch(
        BENCHMARK_SPACE,
        benchmark_ms,
        benchmark_ms(TEACHER),
        benchmark_params,
        SearchSpec.read(wanted, "test"),
    )


def expected(count: int, failing: str = "") -> list[str]:
    """What a searcher suggests that is asked in this process."""
    searcher, seen = KdnasSearcher(search()), []
    for number in range(count):
        config = searcher.suggest(str(number))
        assert isinstance(config, dict)
        state = Architecture(**config)
        seen.append(str(state))
        failed = str(state) == failing
        loss = benchmark_losses(state).relative
        searcher.on_trial_complete(str(number), {"loss": loss}, error=failed)
    return seen


def trained(config: dict[str, Any]) -> None:
    tune.report({"loss": benchmark_losses(Architecture(**config)).relative})


def tuner(
    trainable: Any,
    searcher: KdnasSearcher,
    folder: Path,
    count: int,
    at_once: int = 1,
    callbacks: Sequence[tune.Callback] = (),
) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=count,
            max_concurrent_trials=at_once,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder),
            name="run",
            verbose=0,
            callbacks=list(callbacks),
        ),
    )


def states(results: Any) -> list[str]:
    return [str(Architecture(**result.config)) for result in results if result.error is None]


@pytest.mark.parametrize("at_once", [1, 2])
def test_trials_are_those_that_the_searcher_suggests(tmp_path: Path, at_once: int) -> None:
    results = tuner(trained, KdnasSearcher(search()), tmp_path, 6, at_once).fit()
    assert not results.errors
    assert sorted(states(results)) == sorted(expected(6))
    best = results.get_best_result("loss", "min")
    assert best.metrics["loss"] == benchmark_losses(Architecture(**best.config)).relative


def test_a_run_ends_with_the_last_state(tmp_path: Path) -> None:
    few = search(limits={"max_latency_ratio": 0.056})
    results = tuner(trained, KdnasSearcher(few), tmp_path, 100, 2).fit()
    assert 1 < len(few.allowed) < 6
    assert sorted(states(results)) == sorted(str(few.space[index]) for index in few.allowed)


class Killer(tune.Callback):
    """Kills the process that made it once a state is in training and all that was written is there.

    Ray Tune copies its state in place and behind the run; of a copy that is cut off it takes
    nothing and begins anew, which says nothing of the searcher. A step begins as the copy of the
    last one does, so the run is held until that is done.
    """

    def __init__(self, deadly: str) -> None:
        self._deadly, self._driver = deadly, os.getpid()

    def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
        for trial in trials:
            if os.getpid() == self._driver and str(Architecture(**trial.config)) == self._deadly:
                written = Path(trial.storage.experiment_driver_staging_path)
                copied, give_up = Path(trial.storage.experiment_fs_path), time.monotonic() + 5
                while time.monotonic() < give_up:
                    if _all_there(written, copied):
                        os.kill(self._driver, signal.SIGKILL)
                    time.sleep(0.01)


def _all_there(written: Path, copied: Path) -> bool:
    names = [path.name for path in written.iterdir() if path.is_file()]
    return bool(names) and filecmp.cmpfiles(written, copied, names, shallow=False)[0] == names


KILLED = """
import importlib.util, sys, time
import ray
from pathlib import Path

spec = importlib.util.spec_from_file_location("adapter_test", sys.argv[1])
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
sys.modules["adapter_test"] = here
ray.cloudpickle.register_pickle_by_value(here)
deadly = sys.argv[3]
ray.init(address=sys.argv[4])

def trained(config):
    if str(here.Architecture(**config)) == deadly:
        time.sleep(60)
    here.trained(config)

searcher, killer = here.KdnasSearcher(here.search()), here.Killer(deadly)
here.tuner(trained, searcher, Path(sys.argv[2]), 6, callbacks=[killer]).fit()
"""


def test_a_run_that_was_killed_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    arguments = [__file__, str(tmp_path), expected(3)[2], address]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        env={**os.environ, "TUNE_GLOBAL_CHECKPOINT_S": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    results = tune.Tuner.restore(str(tmp_path / "run"), trained).fit()
    assert sorted(states(results)) == sorted(expected(6))


def test_a_trial_that_fails_is_told(tmp_path: Path) -> None:
    broken = expected(2)[1]

    def breaks(config: dict[str, Any]) -> None:
        if str(Architecture(**config)) == broken:
            raise RuntimeError("out of memory")
        trained(config)

    results = tuner(breaks, KdnasSearcher(search()), tmp_path, 6).fit()
    assert len(results.errors) == 1
    assert sorted(states(results)) == sorted(set(expected(6, broken)) - {broken})

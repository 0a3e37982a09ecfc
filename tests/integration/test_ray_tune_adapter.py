"""Strategies as a search algorithm of a real Ray Tune on a small local cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
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
    trainable: Any, searcher: KdnasSearcher, folder: Path, count: int, at_once: int = 1
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


KILLED = """
import importlib.util, os, signal, sys
import ray
from pathlib import Path

spec = importlib.util.spec_from_file_location("adapter_test", sys.argv[1])
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
driver, deadly = os.getpid(), sys.argv[3]

def trained(config):
    if str(here.Architecture(**config)) == deadly:
        os.kill(driver, signal.SIGKILL)
    here.trained(config)

ray.init(address=sys.argv[4])
here.tuner(trained, here.KdnasSearcher(here.search()), Path(sys.argv[2]), 6).fit()
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

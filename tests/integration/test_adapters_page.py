"""The examples of docs/adapters.md, run as they stand there by Optuna and Ray Tune."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from workers.cluster import cluster

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
SEARCH, OPTUNA, RAY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(*examples: str) -> dict[str, Any]:
    """Run examples one after the other in one module; returns what they define."""
    found: dict[str, Any] = {"__name__": "example"}
    for example in examples:
        exec(compile(example, "docs/adapters.md", "exec"), found)
    return found


@pytest.fixture
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


@pytest.mark.usefixtures("_quiet")
def test_optuna(capsys: pytest.CaptureFixture[str]) -> None:
    study = run(SEARCH, OPTUNA)["study"]
    assert len({str(trial.params) for trial in study.trials}) == 30
    losses = [trial.value for trial in study.trials]
    assert min(losses) < sum(losses[:10]) / 10
    assert str(study.best_params) in capsys.readouterr().out


@pytest.mark.ray
def test_ray_tune(
    ray_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(ray_home))
    with cluster(None, 2):
        results = run(SEARCH, RAY)["results"]
    assert len(results) == 6
    assert not results.errors
    assert str(results.get_best_result("loss", "min").config) in capsys.readouterr().out

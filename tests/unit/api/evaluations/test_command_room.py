"""When fine-tunings go beside each other; the processes themselves are in integration."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.evaluations import command
from api.evaluations.command import _room, run_evaluation
from api.evaluations.prepare import PreparedEvaluation, prepare_evaluation
from kdnas.db.engine import Database
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedEvaluation:
    folder = tmp_path_factory.mktemp("jobs")
    make_tiny_teacher(folder / "model", words=WORDS)
    write_sst2(folder / "glue")
    request: dict[str, Any] = {
        "model": str(folder / "model"),
        "suite": "glue",
        "data_dir": str(folder / "glue"),
        "seeds": 2,
        "max_steps": 3,
        "device": "cpu",
        "threads": 1,
    }
    return prepare_evaluation(EvaluationSpec.read(request, "test"))


@pytest.mark.parametrize(
    ("epochs", "pairs", "cores", "wanted"),
    [
        (200, 2, 4, 2),  # 60 sentences in batches of 32
        (200, 4, 2, 2),
        (200, 4, 1, 1),
        (200, 1, 4, 1),
        (10, 4, 4, 1),  # not worth a cluster
    ],
)
def test_fine_tunings_go_beside_each_other_where_it_pays(
    prepared: PreparedEvaluation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    epochs: float,
    pairs: int,
    cores: int,
    wanted: int,
) -> None:
    monkeypatch.setattr(command, "available_cores", lambda: cores)
    monkeypatch.setattr("workers.machine.available_cores", lambda: cores)
    (planned,) = prepared.tasks
    longer = replace(planned, settings=replace(planned.settings, epochs=epochs, max_steps=None))
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    assert _room(prepared, settings, [(longer, seed) for seed in range(pairs)]) == wanted


def test_a_short_evaluation_needs_no_cluster(
    prepared: PreparedEvaluation, database: Database, tmp_path: Path
) -> None:
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    outcome = run_evaluation(prepared, database, settings, None)
    assert [(pair.result.seed, pair.known) for pair in outcome.finished] == [(0, False), (1, False)]
    again = run_evaluation(prepared, database, settings, 4)
    assert [pair.known for pair in again.finished] == [True, True]
    ray = sys.modules.get("ray")
    assert ray is None or not ray.is_initialized()

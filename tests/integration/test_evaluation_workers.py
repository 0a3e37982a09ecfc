"""Evaluations by real processes: seeds beside each other, a kill, and an end in good order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import Evaluation
from kdnas.db.queue import leases
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations, events
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.testing.commands import Program
from kdnas.testing.forked import Forked
from kdnas.testing.tiny_tasks import write_sst2

pytestmark = pytest.mark.slow


class Place:
    """A home with a tiny model, a tiny task and a database."""

    def __init__(self, folder: Path) -> None:
        self.program = Program.make(folder)
        write_sst2(folder / "glue")
        self.database: Database = open_database(Settings.from_environment(self.program.environment))

    def queue(self, *seeds: int, steps: int) -> list[str]:
        request = {
            "model": str(self.program.folder / "teacher"),
            "suite": "glue",
            "tasks": ["SST-2"],
            "data_dir": str(self.program.folder / "glue"),
            "max_steps": steps,
            "epochs": steps,
            "batch_size": 8,
            "device": "cpu",
        }
        spec = EvaluationSpec.read(request, "test")
        pairs = [
            NewEvaluation(
                "glue", "SST-2", seed, spec.model_copy(update={"seeds": (seed,)}).to_json()
            )
            for seed in seeds
        ]
        with self.database.write() as session:
            return evaluations.create_evaluations(session, pairs, model=spec.model.ref)

    def row(self, row_id: str) -> EvaluationRecord:
        with self.database.read() as session:
            row = evaluations.get_evaluation(session, row_id)
        assert row.status != "failed", row.error
        return row

    def pid(self, row_id: str) -> int | None:
        with self.database.read() as session:
            holder = leases.holder(session, Evaluation, row_id)
        return None if holder is None else holder.pid

    def has_succeeded(self, *ids: str) -> bool:
        return all(self.row(row_id).status == "succeeded" for row_id in ids)

    def coordinator(self) -> AbstractContextManager[Forked]:
        return self.program.coordinator("--max-running", "2")


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("evaluations"))
    yield made
    made.database.close()


def test_seeds_beside_each_other_a_kill_and_a_drain(place: Place) -> None:
    first, second, third = place.queue(0, 1, 2, steps=400)
    with place.coordinator() as coordinator:
        nobodys = {None, coordinator.pid}  # the coordinator's own until a runner has taken over
        wait_for(lambda: len({place.pid(first), place.pid(second)} - nobodys) == 2)
        assert place.row(third).status == "queued"
        wait_for(lambda: place.row(first).share > 0)
        killed = place.pid(first)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: place.row(third).share > 0)
        coordinator.send_signal(signal.SIGTERM)
        assert coordinator.wait(60).code == 0
    assert place.row(third).status in {"running", "succeeded"}  # nobody asked for a pause
    assert place.pid(third) is None
    with place.coordinator():
        wait_for(lambda: place.has_succeeded(first, second, third))
        again = place.queue(0, steps=400)
        wait_for(lambda: place.has_succeeded(*again))
    assert place.row(again[0]).metrics == place.row(first).metrics
    assert {place.row(row_id).metrics["steps"] for row_id in (first, second, third)} == {400}
    with place.database.read() as session:
        told = events.events_since(session, limit=10_000)
    interrupted = [e.payload for e in told if e.type == "evaluation_interrupted"]
    assert [(p["evaluation"], p["reason"]) for p in interrupted] == [(first, "killed by signal 9")]

"""A pipeline of the command line part after part; the parts themselves are in integration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.pipelines.advance import begin_pipeline
from api.pipelines.run import run_stored_pipeline
from kdnas.db.engine import Database
from kdnas.db.records import DistillationRecord, EvaluationRecord, PipelineRecord
from kdnas.db.repository import distillations, evaluations, jobs, pipelines
from kdnas.errors import ConflictError, TrainingError
from kdnas.records import SearchRecord
from kdnas.testing.walked_pipeline import end_search, pipeline_spec

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")


class Hands:
    """Does the parts of a pipeline by their rows alone, and remembers which."""

    def __init__(self, database: Database, pipeline_id: str) -> None:
        self.database, self.pipeline_id = database, pipeline_id
        self.did: list[str] = []
        self.failing = ""
        self.doers: dict[str, Callable[[Any], object]] = {
            "search": self.search,
            "distillation": self.distillation,
            "evaluation": self.evaluation,
        }

    def search(self, _: SearchRecord) -> None:
        self.did.append("search")
        with self.database.read() as session:
            record = pipelines.get_pipeline(session, self.pipeline_id)
        end_search(self.database, record)

    def distillation(self, part: DistillationRecord) -> None:
        self.did.append("distillation")
        with self.database.write() as session:
            if part.name == self.failing:
                jobs.set_status(session, part.id, "failed", "the loss is nan")
            else:
                distillations.set_distillation_result(
                    session, part.id, metrics={}, output_path=f"/students/{part.id}"
                )
                jobs.set_status(session, part.id, "succeeded")
        if part.name == self.failing:
            raise TrainingError("the loss is nan")

    def evaluation(self, part: EvaluationRecord) -> None:
        self.did.append("evaluation")
        with self.database.write() as session:
            evaluations.set_figures(session, part.id, {"main": 0.9})

    def run(self, **more: Any) -> tuple[PipelineRecord, list[str]]:
        told: list[str] = []
        record = run_stored_pipeline(
            self.pipeline_id,
            self.database,
            self.doers,
            lambda error: told.append(str(error)),
            **more,
        )
        return record, told


@pytest.fixture
def hands(database: Database) -> Hands:
    spec = pipeline_spec(name="by-hand", baselines={"random": 0, "undistilled": False})
    with database.write() as session:
        return Hands(database, begin_pipeline(session, spec, "cli").id)


def test_students_wait_for_the_search_and_scores_for_students(hands: Hands) -> None:
    record, told = hands.run()
    assert (record.status, record.stage, told) == ("succeeded", "done", [])
    kinds = list(dict.fromkeys(hands.did))
    assert kinds == ["search", "distillation", "evaluation"]
    assert hands.did == sorted(hands.did, key=kinds.index)
    with pytest.raises(ConflictError, match="has succeeded; start a new one"):
        hands.run()


def test_what_failed_keeps_nothing_else_from_its_end_and_is_tried_again(hands: Hands) -> None:
    hands.failing = "by-hand-1"
    record, told = hands.run()
    assert (record.status, told) == ("failed", ["the loss is nan"])
    assert "evaluation" in hands.did
    hands.failing, hands.did = "", []
    record, told = hands.run()
    assert (record.status, told) == ("succeeded", [])
    assert hands.did[0] == "distillation"
    assert set(hands.did[1:]) == {"evaluation"}


def test_it_pauses_when_it_is_to_stop_and_when_nobody_foresaw_what_happened(hands: Hands) -> None:
    asked = iter([False, True])
    record, _ = hands.run(should_stop=asked.__next__)
    assert (record.status, hands.did) == ("paused", ["search"])

    def broken(_: object) -> None:
        raise ZeroDivisionError

    hands.doers["distillation"] = broken
    with pytest.raises(ZeroDivisionError):
        hands.run()
    with hands.database.read() as session:
        assert pipelines.get_pipeline(session, hands.pipeline_id).status == "paused"


def test_what_is_the_services_is_left_to_it(database: Database) -> None:
    with database.write() as session:
        made = begin_pipeline(session, pipeline_spec(name="theirs"), "service")
    with pytest.raises(ConflictError, match="is the service's"):
        Hands(database, made.id).run()

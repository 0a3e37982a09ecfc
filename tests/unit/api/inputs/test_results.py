"""Which stored students have not learned: the same ones that a search would call so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from api.inputs.results import learned_nothing
from kdnas.architecture import Architecture
from kdnas.db.records import DistillationRecord
from kdnas.search.checks import not_learned
from kdnas.specs.distillation import DistillationSpec

SPEC = DistillationSpec.model_validate(
    {"architecture": "3,4,288,384,gelu", "training": {"steps": 200, "learning_rate": 0.004}}
)
DONE = DistillationRecord(
    id="d1",
    name="done",
    architecture=Architecture.parse(SPEC.architecture),
    spec=SPEC.to_json(),
    status="succeeded",
    owner_kind="cli",
    step=200,
    total_steps=200,
    metrics={"output": 1.034},
    artefact=None,
    output_path="/students/done",
    error=None,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    started_at=None,
    finished_at=None,
)


def test_a_student_that_is_no_better_than_ignoring_its_input_has_not_learned() -> None:
    assert learned_nothing(DONE) == (
        "has not learned: its held-out output loss is 1.034, that of a student that ignores its "
        "input is 1; a smaller training.learning_rate than 0.004 or more steps may help"
    )
    assert learned_nothing(replace(DONE, metrics={"output": 1.0})) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"metrics": {"output": 0.999}},
        {"metrics": {}},
        {"status": "paused"},
        {"total_steps": 0},  # a student as it starts was to learn nothing
    ],
    ids=str,
)
def test_nothing_is_said_of_the_others(changed: dict[str, Any]) -> None:
    assert learned_nothing(replace(DONE, **changed)) is None


@pytest.mark.parametrize("output", [0.2, 1.0, 3.0])
def test_a_search_decides_alike(output: float) -> None:
    stored = learned_nothing(replace(DONE, metrics={"output": output}))
    searched = not_learned(output, 0.004)
    assert (stored is None) == (searched is None)

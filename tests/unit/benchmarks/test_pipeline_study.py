"""The study of a pipeline compares what the pipeline recommended with the cut that it scored."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("pipeline_study")


def shown(student_ms: float, cuts: dict[int, float]) -> dict[str, Any]:
    models = [
        {"name": "taken", "architecture": "2,12,288,384,relu", "kept_layers": None},
        *({"name": f"cut {kept}", "kept_layers": kept} for kept in cuts),
    ]
    for model, ms in zip(models, (student_ms, *cuts.values()), strict=True):
        model["latency_ms"] = ms
    return {
        "report": {"picks": [{"name": "taken"}], "models": models},
        "spec": {
            "search": {"objective": {"name": "hs", "last_weight": 3.0}},
            "distillation": {"training": {"steps": 1000, "batch_size": 16, "learning_rate": 0.002}},
            "evaluation": {"tasks": ["SST-2"], "max_steps": 500, "learning_rate": 1e-4},
        },
    }


@pytest.mark.parametrize(
    ("student_ms", "cuts", "kept"),
    [
        (2.9, {1: 1.5, 2: 3.0, 3: 4.3}, 2),
        (3.0, {1: 1.5, 2: 3.0, 3: 4.3}, 2),
        (1.0, {3: 4.3, 1: 1.5}, 1),
        (8.0, {1: 1.5, 3: 4.3}, 6),
    ],
)
def test_the_cut_is_the_smallest_scored_one_that_is_not_faster(
    study: ModuleType, student_ms: float, cuts: dict[int, float], kept: int
) -> None:
    assert study.smallest_cut(shown(student_ms, cuts)) == kept


def test_what_is_to_be_made_is_said_as_the_pipeline_did_it(study: ModuleType) -> None:
    commands = study.to_do(shown(2.9, {2: 3.0}))
    assert "--arch 2,12,288,384,relu --layers 2 --steps 1000 --batch-size 16" in commands
    assert "--last-weight 3 --tuning-steps 500 --models MODELS" in commands
    assert "--tasks SST-2 --data-dir GLUE" in commands


def test_folders_of_the_machine_are_left_out(study: ModuleType) -> None:
    here = "/".join(("", "home", "me"))
    assert study.without_folders(f"data of {here}/data/glue, a/b") == "data of ./glue, a/b"

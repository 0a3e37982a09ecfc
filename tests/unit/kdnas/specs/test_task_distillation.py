"""The request for distillations for one task."""

from __future__ import annotations

from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.specs.task_distillation import METHODS, TaskDistillationSpec


def read(**values: Any) -> TaskDistillationSpec:
    return TaskDistillationSpec.read({"task": "rte", **values}, "task-distill")


def test_it_needs_a_task_and_has_defaults_for_the_rest() -> None:
    spec = read()
    assert (spec.methods, spec.seeds, spec.student) == (
        ("universal-kd-il",),
        (0,),
        "first-layers:3",
    )
    assert {spec.batch_size, spec.learning_rate, spec.beta, spec.epochs, spec.grid} == {None}
    with pytest.raises(SpecError, match="task"):
        TaskDistillationSpec.read({}, "task-distill")


def test_it_is_read_back_from_what_is_stored() -> None:
    spec = read(methods=list(METHODS), seeds=3, grid={}, teacher_layers=[2, 4])
    assert spec.seeds == (0, 1, 2)
    assert spec.grid is not None
    assert (spec.grid.batch_sizes, spec.grid.betas) == ((8, 16, 32), (0.2, 0.5, 0.7))
    assert TaskDistillationSpec.read(spec.to_json(), "task-distill") == spec


def test_one_method_needs_no_list() -> None:
    assert read(methods="dih").methods == ("dih",)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"methods": ["kd"]}, "methods"),
        ({"methods": []}, "methods"),
        ({"methods": ["dih", "dih"]}, "each once"),
        ({"seeds": [1, 1]}, "each once"),
        ({"seeds": 0}, "1 to 1000 seeds"),
        ({"teacher_layers": [1, 1]}, "each once"),
        ({"teacher_layers": [0]}, "teacher_layers"),
        ({"beta": 1.5}, "beta"),
        ({"dropout": 1}, "dropout"),
        ({"learning_rate": 1}, "learning_rate"),
        ({"temperature": 0}, "temperature"),
        ({"max_steps": 0}, "max_steps"),
        ({"epochs": 0}, "epochs"),
        ({"cache": "sometimes"}, "cache"),
        ({"published": "bert-6"}, "published"),
        ({"student": ""}, "student"),
        ({"own": {}}, "needs data_dir"),
        ({"own": {"kind": "tagging"}, "data_dir": "."}, "kind tagging cannot be distilled for"),
        ({"own": {"kind": "poetry"}, "data_dir": "."}, "own.kind"),
        ({"own": {"kind": ["tagging"]}, "data_dir": "."}, "own.kind"),
        ({"grid": {}, "beta": 0.5}, "leave them out, or the grid"),
        ({"grid": {"betas": [0.5, 0.5]}}, "must differ"),
        ({"grid": {"betas": []}}, "betas"),
        ({"grid": {"batch_sizes": list(range(1, 101)), "betas": [0.1, 0.2]}}, "at most 100 points"),
        ({"teacher": {"warmup_epochs": 0}}, "warmup_epochs"),
        ({"teacher": {"warmup_states": "scaled"}}, "raw, standardised"),
        ({"tmeperature": 2}, "tmeperature"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read(**values)

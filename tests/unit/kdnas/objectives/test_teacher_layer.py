from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import LayerMappingError
from kdnas.models.families import FAMILIES
from kdnas.objectives.teacher_layer import (
    automatic_teacher_layer,
    teacher_layer,
    teacher_layer_problem,
)
from kdnas.testing.objective_contract import TEACHER


@pytest.mark.parametrize(
    ("model_type", "layers", "expected"),
    [
        ("bert", 12, 11),
        ("roberta", 12, 11),
        ("distilbert", 12, 11),
        ("bert", 24, 21),
        ("electra", 24, 21),
        ("roberta", 24, 19),
        ("xlm-roberta", 24, 19),
        ("distilbert", 24, 20),
        ("bert", 6, 5),
        ("bert", 4, 3),
        ("bert", 2, 2),
        ("bert", 1, 1),
        ("roberta", 36, 31),
    ],
)
def test_the_automatic_layer(model_type: str, layers: int, expected: int) -> None:
    shape = replace(TEACHER, model_type=model_type, layers=layers)
    assert automatic_teacher_layer(shape) == expected
    assert teacher_layer(None, shape) == expected


@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 60))
def test_the_automatic_layer_exists_and_is_an_upper_one(model_type: str, layers: int) -> None:
    found = automatic_teacher_layer(replace(TEACHER, model_type=model_type, layers=layers))
    assert layers / 2 < found <= layers


def test_a_given_layer_is_checked() -> None:
    assert [teacher_layer(layer, TEACHER) for layer in range(1, 6)] == [1, 2, 3, 4, 5]
    for layer in (0, 6, -1):
        with pytest.raises(LayerMappingError, match=rf"teacher layer {layer} is outside 1 … 5"):
            teacher_layer(layer, TEACHER)
    problem = teacher_layer_problem(9, TEACHER)
    assert problem is not None
    assert problem.endswith("or auto, which takes layer 4")

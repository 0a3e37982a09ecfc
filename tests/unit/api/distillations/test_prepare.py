"""What a prepared distillation warns of before hours are spent."""

from __future__ import annotations

from typing import Any

import pytest

from api.distillations.prepare import PreparedDistillation
from api.inputs.preparation import Pinned
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

SLOWER = (
    "a learning rate of 0.002 is large for output distributions: 0.0002 taught a student that "
    "0.001 ruined; give at most 0.0005"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def warnings(lab: TinyLab, objective: Any, rate: float, student: str = "1,2,24,48,gelu") -> Any:
    values = objective_spec(objective).to_json()
    spec = lab.distillation(student, values, learning_rate=rate)
    pinned = Pinned(lab.teacher, lab.corpus, spec.teacher, spec.corpus)
    return PreparedDistillation(spec, pinned, None, "cpu", "float32").warnings


def test_output_distributions_want_a_small_rate(lab: TinyLab) -> None:
    assert SLOWER in warnings(lab, "od", 2e-3)
    assert SLOWER not in warnings(lab, "od", 2e-4)
    assert SLOWER not in warnings(lab, "hs", 2e-3)
    assert SLOWER in warnings(lab.with_lm_head(), "distilbert", 2e-3, "2,4,48,96,gelu")


def test_so_does_a_second_stage(lab: TinyLab) -> None:
    slower = SLOWER.replace("0.002", "0.0012") + " (it is 0.6 times 0.002: od_rate)"
    assert slower in warnings(lab, "hs+od", 2e-3)
    assert warnings(lab, {"name": "hs+od", "od_rate": 0.1}, 2e-3) == []


def test_output_distributions_from_the_first_step_are_slow(lab: TinyLab) -> None:
    assert any("begin with an hs student" in text for text in warnings(lab, "od", 2e-4))
    assert warnings(lab, "hs", 2e-4) == []


def test_a_student_larger_than_its_teacher_is_said_to_be(lab: TinyLab) -> None:
    (text,) = warnings(lab, "hs", 2e-4, "2,4,96,384,gelu")
    assert "is larger than its teacher" in text


def test_a_head_of_the_teachers_own_is_not_fitted_again(lab: TinyLab) -> None:
    with_head = lab.with_lm_head()
    asked = {"name": "hs+od", "fit_lm_head": 5}
    assert warnings(with_head, asked, 2e-4) == []
    (text,) = warnings(lab, asked, 2e-4)
    assert text.endswith("which is used; `objective.fit_lm_head` counts for nothing")

"""What is refused of methods before anything is loaded is what the methods refuse."""

from __future__ import annotations

import pytest

from api.inputs.methods import misfit
from kdnas.errors import SpecError
from kdnas.specs.task_distillation import METHODS, TaskDistillationSpec
from kdnas.taskspecific.methods.base import NetworkShape, Setting
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.output_space import Classes
from workers.task.request import assistant_choice


def refuses(method: str, layers: int, teacher: int, transformer: bool) -> bool:
    """Whether the method itself does, or finds no assistant."""
    kind = method_named(method)
    student, taught_by = NetworkShape(layers, 24, transformer), NetworkShape(teacher, 24)
    try:
        kind(Setting(Classes(2), student, taught_by, 0.5))
        if kind.assisted:
            _find_assistant(layers, teacher)
    except SpecError:
        return True
    return False


def _find_assistant(layers: int, teacher: int) -> None:
    spec = TaskDistillationSpec(task="RTE", methods=("takd",))
    assistant_choice(spec, NetworkShape(layers, 24), NetworkShape(teacher, 24))


@pytest.mark.parametrize("transformer", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_misfit_is_what_the_method_itself_refuses(method: str, transformer: bool) -> None:
    for teacher in (1, 2, 3, 6):
        for layers in range(1, 8):
            found = misfit(method, layers, teacher, transformer=transformer)
            assert (found is not None) == refuses(method, layers, teacher, transformer)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "universal-kd-ca"])
def test_where_the_teacher_is_not_known_it_is_taken_to_be_fine(method: str) -> None:
    assert misfit(method, 2, None) is None

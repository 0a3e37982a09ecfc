"""Which teacher layers are matched with a student's, or learned from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import SpecError
from kdnas.taskspecific.methods.base import NetworkShape, Setting
from kdnas.taskspecific.methods.layer_choice import chosen_layers, matched_layers
from kdnas.taskspecific.output_space import Classes


def setting(student: int, teacher: int) -> Setting:
    return Setting(Classes(2), NetworkShape(student, 8), NetworkShape(teacher, 8), 0.5)


@pytest.mark.parametrize(
    ("choice", "student", "teacher", "layers"),
    [
        ("skip", 4, 12, (3, 6, 9)),
        ("last", 4, 12, (9, 10, 11)),
        ("skip", 3, 6, (2, 4)),
        ("skip", 4, 6, (1, 3, 4)),
        ("last", 6, 6, (1, 2, 3, 4, 5)),
        ("skip", 6, 6, (1, 2, 3, 4, 5)),
        ("skip", 1, 6, ()),
    ],
)
def test_layers_are_matched_as_published(
    choice: str, student: int, teacher: int, layers: tuple[int, ...]
) -> None:
    asked = replace(setting(student, teacher), layer_choice=choice)
    assert matched_layers(asked) == layers


@given(
    student=st.integers(1, 30), more=st.integers(0, 30), choice=st.sampled_from(["skip", "last"])
)
def test_they_rise_and_stay_below_the_last(student: int, more: int, choice: str) -> None:
    found = matched_layers(replace(setting(student, student + more), layer_choice=choice))
    assert len(found) == student - 1
    assert list(found) == sorted(set(found))
    assert all(j <= layer < student + more for j, layer in enumerate(found, 1))


def test_given_layers_are_taken() -> None:
    given_ones = replace(setting(3, 6), teacher_layers=(5, 2))
    assert matched_layers(given_ones) == chosen_layers(given_ones) == (5, 2)
    assert chosen_layers(setting(3, 4)) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (setting(7, 6), "a student of 7 layers has more than its teacher's 6"),
        (
            replace(setting(3, 6), teacher_layers=(1,)),
            r"teacher_layers \[1\] are 1 for the 2 inner",
        ),
        (replace(setting(3, 6), teacher_layers=(1, 7)), "layer 7 is none of the teacher's 6"),
        (replace(setting(3, 6), teacher_layers=(0, 1)), "layer 0 is none of the teacher's 6"),
    ],
)
def test_layers_that_cannot_be_matched_are_refused(asked: Setting, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        matched_layers(asked)


def test_a_layer_that_is_none_cannot_be_chosen() -> None:
    with pytest.raises(SpecError, match="give layers from 1 to 6"):
        chosen_layers(replace(setting(1, 6), teacher_layers=(6, 9)))

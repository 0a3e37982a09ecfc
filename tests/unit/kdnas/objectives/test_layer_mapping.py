from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import LayerMappingError
from kdnas.objectives.layer_mapping import MAPPINGS, layer_mapping

depths = st.integers(1, 48).flatmap(lambda t: st.tuples(st.integers(1, t), st.just(t)))
dividing = st.tuples(st.integers(1, 12), st.integers(1, 6)).map(lambda p: (p[0], p[0] * p[1]))
names = st.sampled_from(sorted(MAPPINGS))


def printed(name: str, i: int, student: int, teacher: int) -> set[int]:
    """The papers' formulas, with k = ⌈L^T/L^S⌉ (Udagawa §4, Trivedi Eq. 2).

    ``uniform_consecutive`` without the first layer of its closed interval, as science §2 says.
    """
    k = math.ceil(teacher / student)
    last = teacher - student + i
    return {
        "single": {teacher} if i == student else set(),
        "last": {last},
        "uniform": {k * i},
        "uniform_consecutive": set(range(k * (i - 1) + 1, k * i + 1)),
        "uniform_last": {k * i, last},
        "kdnas": {(i - 1) * k + 1, last},
    }[name]


@given(names, dividing)
def test_equal_to_the_printed_formulas_where_depths_divide(
    name: str, depth: tuple[int, int]
) -> None:
    student, teacher = depth
    expected = {i: printed(name, i, student, teacher) for i in range(1, student + 1)}
    mapping = layer_mapping(name, student, teacher)
    assert mapping == {i: tuple(sorted(g)) for i, g in expected.items() if g}


@given(names, depths)
def test_inside_the_teacher_and_strictly_increasing(name: str, depth: tuple[int, int]) -> None:
    student, teacher = depth
    mapping = layer_mapping(name, student, teacher)
    layers = list(mapping)
    assert layers == sorted(layers)
    assert set(layers) <= set(range(1, student + 1))
    assert name == "single" or len(layers) == student
    for group in mapping.values():
        assert list(group) == sorted(set(group))
        assert 1 <= group[0] <= group[-1] <= teacher
    for edge in (0, -1):
        edges = [group[edge] for group in mapping.values()]
        assert all(a < b for a, b in itertools.pairwise(edges))


@given(names, depths)
def test_every_mapping_has_the_pair_of_last_layers(name: str, depth: tuple[int, int]) -> None:
    student, teacher = depth
    assert teacher in layer_mapping(name, student, teacher)[student]


@given(depths)
def test_uniform_consecutive_is_a_partition(depth: tuple[int, int]) -> None:
    student, teacher = depth
    mapping = layer_mapping("uniform_consecutive", student, teacher)
    assert [j for i in mapping for j in mapping[i]] == list(range(1, teacher + 1))


def test_an_uneven_pair_by_hand() -> None:
    assert layer_mapping("kdnas", 10, 12) == {
        1: (1, 3),
        2: (2, 4),
        3: (3, 5),
        4: (4, 6),
        5: (5, 7),
        6: (7, 8),
        7: (8, 9),
        8: (9, 10),
        9: (10, 11),
        10: (11, 12),
    }
    assert layer_mapping("uniform", 4, 6) == {1: (2,), 2: (3,), 3: (5,), 4: (6,)}


def test_an_explicit_mapping_is_sorted_and_its_repeats_dropped() -> None:
    assert layer_mapping({2: (6, 5, 6), 1: (3, 1)}, 2, 6) == {1: (1, 3), 2: (5, 6)}


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({3: (6,), 2: (6,)}, r"student layer 3 of the mapping is outside 1 … 2"),
        ({0: (1,), 2: (6,)}, r"student layer 0"),
        ({1: (0,), 2: (6,)}, r"teacher layer 0 of the mapping is outside 1 … 6"),
        ({2: (6, 7)}, r"teacher layer 7"),
        ({1: (6,)}, r"student layer 2 with teacher layer 6"),
        ({}, r"student layer 2 with teacher layer 6"),
        ("kdnaz", r"'kdnaz', did you mean 'kdnas'"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping: str | dict[int, tuple[int, ...]], words: str) -> None:
    with pytest.raises(LayerMappingError, match=words):
        layer_mapping(mapping, 2, 6)


def test_a_student_deeper_than_its_teacher_is_refused() -> None:
    with pytest.raises(LayerMappingError, match="5 layers cannot map to a teacher of 4"):
        layer_mapping("kdnas", 5, 4)

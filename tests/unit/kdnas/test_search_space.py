from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.errors import SearchSpaceError
from kdnas.records import TeacherShape
from kdnas.search_space import AXES, SearchSpace, architecture_problem

PAPER = SearchSpace.paper()
RELATION_HEADS = 48


def teacher(layers: int, hidden: int) -> TeacherShape:
    return TeacherShape("bert", layers, 12, hidden, 4 * hidden, "gelu", 30522, 512, 2, "f")


def axis(values: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(values, min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    heads = draw(axis(st.integers(1, 12)))
    return SearchSpace(
        draw(axis(st.integers(1, 24))),
        heads,
        (*draw(axis(st.integers(1, 99))), heads[0] * 100),
        draw(axis(st.integers(1, 99))),
    )


def test_the_papers_space_has_2400_states() -> None:
    assert len(PAPER) == 2400
    assert all(hidden % RELATION_HEADS == 0 for hidden in PAPER.hidden)
    assert PAPER[0] == Architecture(3, 2, 288, 384, "gelu")
    assert PAPER[1] == Architecture(3, 2, 288, 384, "relu")
    assert PAPER[2399] == Architecture(12, 12, 768, 3072, "silu")


@given(spaces())
def test_index_and_state_are_a_bijection(space: SearchSpace) -> None:
    assert len(set(space.states)) == len(space)
    for index, state in enumerate(space.states):
        assert space.index(state) == index
        assert space[index] == state
        assert state in space
        assert all(getattr(state, name) in space.axes[name] for name in AXES)


def test_an_index_outside_is_refused() -> None:
    for index in (-1, 2400):
        with pytest.raises(SearchSpaceError, match=rf"{index} is outside .* 2400 states"):
            PAPER[index]


def test_a_foreign_architecture_is_refused_with_the_axes_it_misses() -> None:
    foreign = Architecture(5, 12, 768, 100)
    assert foreign not in PAPER
    with pytest.raises(SearchSpaceError) as caught:
        PAPER.index(foreign)
    assert "layers 5 is not in [3, 4, 6, 10, 12]" in str(caught.value)
    assert "intermediate 100 is not in" in str(caught.value)
    assert "heads" not in str(caught.value)


def test_scaled_to_the_papers_teacher_is_the_papers_space() -> None:
    assert SearchSpace.scaled_to(teacher(12, 768)) == PAPER
    assert SearchSpace.scaled_to(teacher(12, 768)).fingerprint == PAPER.fingerprint


def test_scaled_to_a_teacher_of_half_depth_and_width() -> None:
    """Science §1."""
    space = SearchSpace.scaled_to(teacher(6, 384))
    assert space.layers == (1, 2, 3, 5, 6)
    assert space.heads == (2, 3, 4, 6, 12)
    assert space.hidden == (144, 192, 288, 384)
    assert space.intermediate == (192, 256, 288, 384, 512, 768, 1024, 1536)
    assert len(space) == 2400
    assert all(hidden % RELATION_HEADS == 0 for hidden in space.hidden)


@given(st.integers(1, 48), st.integers(1, 4096))
@settings(max_examples=40)
def test_scaled_to_any_teacher(layers: int, hidden: int) -> None:
    space = SearchSpace.scaled_to(teacher(layers, hidden))
    assert max(space.layers) == layers
    assert all(value % 12 == 0 for value in space.hidden)
    assert abs(max(space.hidden) - hidden) <= max(12, 24)
    assert len(space) == len(space.layers) * 5 * len(space.hidden) * len(space.intermediate) * 3
    if hidden >= 768:
        assert len(space.hidden) == 4


@pytest.mark.parametrize(
    ("layers", "hidden", "depths", "widths"),
    [
        (1, 768, (1,), (288, 384, 576, 768)),
        (2, 384, (1, 2), (144, 192, 288, 384)),
        (24, 1024, (6, 8, 12, 20, 24), (384, 528, 768, 1008)),
        (3, 96, (1, 2, 3), (36, 48, 72, 96)),
        (6, 312, (1, 2, 3, 5, 6), (96, 144, 240, 288)),
        (4, 12, (1, 2, 3, 4), (12,)),
    ],
)
def test_shallow_and_odd_teachers(
    layers: int, hidden: int, depths: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    space = SearchSpace.scaled_to(teacher(layers, hidden))
    assert (space.layers, space.hidden) == (depths, widths)


def test_custom_axes_replace_the_papers() -> None:
    space = SearchSpace.from_axes({"layers": [1, 2], "activation": ["relu"]})
    assert (space.layers, space.activation, space.heads) == ((1, 2), ("relu",), PAPER.heads)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"layer": [1]}, "'layer', did you mean 'layers'"),
        ({"layers": []}, "axis layers is empty"),
        ({"heads": [2, 2]}, r"axis heads repeats a value: \[2, 2\]"),
        ({"hidden": [0]}, "axis hidden holds 0"),
        ({"hidden": ["wide"]}, "axis hidden holds 'wide'"),
        ({"activation": ["gleu"]}, "'gleu', did you mean 'gelu'"),
        ({"heads": [7], "hidden": [288]}, r"no head count of \[7\] divides .* \[288\]"),
    ],
)
def test_wrong_axes_are_refused(axes: dict[str, list[object]], words: str) -> None:
    with pytest.raises(SearchSpaceError, match=words):
        SearchSpace.from_axes(axes)


def test_states_whose_heads_do_not_divide_are_left_out() -> None:
    space = SearchSpace((1,), (2, 5), (48, 50), (96,), ("gelu",))
    assert [(s.heads, s.hidden) for s in space.states] == [(2, 48), (2, 50), (5, 50)]


def test_limited_to_the_teachers_depth() -> None:
    assert PAPER.limited_to_depth(6).layers == (3, 4, 6)
    assert PAPER.limited_to_depth(12) == PAPER
    with pytest.raises(SearchSpaceError, match="deeper than the teacher's 2 layers"):
        PAPER.limited_to_depth(2)


def test_a_student_deeper_than_its_teacher() -> None:
    deep, shape = Architecture(4, 12, 384, 768), teacher(3, 384)
    problem = architecture_problem(deep, shape, maps_layers=True)
    assert problem
    assert "4 layers" in problem
    assert "at most 3 layers" in problem
    assert architecture_problem(deep, shape, maps_layers=False) is None
    assert architecture_problem(replace(deep, layers=3), shape, maps_layers=True) is None


def test_the_fingerprint_tells_spaces_apart() -> None:
    other = SearchSpace.from_axes({"layers": [3, 4, 6, 10]})
    assert other.fingerprint != PAPER.fingerprint

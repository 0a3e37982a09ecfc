from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.errors import SearchSpaceError
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.registry import objective_problem
from kdnas.records import TeacherShape
from kdnas.search_space import AXES, SearchSpace, num_states
from kdnas.specs.objective_registry import objective_spec

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
        ({"layers": [0]}, "axis layers holds 0; use whole numbers from 1 to 1000"),
        ({"hidden": [10**9]}, "axis hidden holds 1000000000; use whole numbers from 1 to 262144"),
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


def test_axes_that_multiply_to_too_many_states_are_refused_unbuilt() -> None:
    axes = {axis: list(range(1, 1001)) for axis in ("layers", "heads", "hidden", "intermediate")}
    with pytest.raises(SearchSpaceError, match=r"multiply to 3000000000000 states, and a search"):
        SearchSpace.from_axes(axes)


def test_states_whose_heads_do_not_divide_are_left_out() -> None:
    space = SearchSpace((1,), (2, 5), (48, 50), (96,), ("gelu",))
    assert [(s.heads, s.hidden) for s in space.states] == [(2, 48), (2, 50), (5, 50)]


def at_most(layers: int) -> Callable[[Architecture], str | None]:
    """What an objective with a layer mapping says to a student deeper than its teacher."""

    def problem(state: Architecture) -> str | None:
        return f"{state.layers} layers are more than {layers}" if state.layers > layers else None

    return problem


def test_limited_to_what_is_possible() -> None:
    assert PAPER.limited_to(at_most(6)).layers == (3, 4, 6)
    assert PAPER.limited_to(at_most(12)) == PAPER
    with pytest.raises(SearchSpaceError) as caught:
        PAPER.limited_to(at_most(2))
    text = "no state of the space is possible: 3 layers are more than 2; use `space: scaled`"
    assert text in str(caught.value)


def test_a_limit_keeps_the_other_axes_and_the_order() -> None:
    space = PAPER.limited_to(lambda state: "too wide" if state.hidden > 400 else None)
    assert space.hidden == (288, 384)
    assert (space.layers, space.heads) == (PAPER.layers, PAPER.heads)
    assert space.states == tuple(state for state in PAPER.states if state.hidden <= 400)


def test_a_limit_that_is_no_matter_of_axes_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="does not lie along axes"):
        PAPER.limited_to(lambda state: "odd pair" if state == PAPER[7] else None)


@pytest.mark.parametrize("spec", ["hs", "hs+od", {"name": "hs", "mapping": "last"}])
def test_a_student_deeper_than_its_teacher(spec: object) -> None:
    """Refused by an objective with a layer mapping, in one sentence with both numbers."""
    deep, shape = Architecture(4, 12, 384, 768), teacher(3, 384)
    problem = HiddenState("last" if isinstance(spec, dict) else "kdnas").problem(deep, shape)
    assert problem
    assert "4 layers" in problem
    assert "at most 3 layers" in problem
    assert objective_problem(objective_spec(spec), deep, shape) == problem
    assert objective_problem(objective_spec(spec), replace(deep, layers=3), shape) is None


def test_states_whose_heads_do_not_suit_the_family_are_left_out() -> None:
    """Rotary positions need heads of an even width."""
    axes = ((1, 2), (2, 4, 12), (24, 36), (96,), ("gelu",))
    space = SearchSpace(*axes, head_multiple=2)
    pairs = [(s.heads, s.hidden) for s in space.states if s.layers == 1]
    assert pairs == [(2, 24), (2, 36), (4, 24), (12, 24)]
    assert len(space) == 8
    assert [space[space.index(state)] for state in space.states] == list(space.states)
    assert Architecture(1, 4, 36, 96) not in space
    assert space.limited_to(at_most(1)) == SearchSpace((1,), *axes[1:], head_multiple=2)
    assert space.fingerprint != SearchSpace(*axes).fingerprint
    with pytest.raises(SearchSpaceError, match=r"\[12\] divides .* \[36\] into heads whose width"):
        SearchSpace((1,), (12,), (36,), (96,), head_multiple=2)


def test_the_papers_heads_are_even() -> None:
    """So a ModernBERT teacher loses no state of it, nor of a space scaled to it in 48s."""
    for space in (PAPER, SearchSpace.scaled_to(teacher(22, 768))):
        assert len(replace(space, head_multiple=2)) == len(space)


def test_the_fingerprint_tells_spaces_apart() -> None:
    other = SearchSpace.from_axes({"layers": [3, 4, 6, 10]})
    assert other.fingerprint != PAPER.fingerprint


@pytest.mark.parametrize("multiple", [1, 2])
def test_states_are_counted_without_a_list(multiple: int) -> None:
    for space in (SearchSpace.paper(), SearchSpace((1, 2), (2, 5), (48, 100, 30), (96,))):
        wide = replace(space, head_multiple=multiple)
        assert num_states(wide.axes, multiple) == len(wide)
    assert num_states({"layers": [1, 2]}, 1) == len(SearchSpace.from_axes({"layers": [1, 2]}))

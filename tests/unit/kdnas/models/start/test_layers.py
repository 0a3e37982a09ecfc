from __future__ import annotations

import math
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from kdnas.models.start.layers import shares

DEPTHS = st.integers(1, 30)
KINDS = st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=4)


@given(student=DEPTHS, teacher=DEPTHS)
def test_spans_are_a_partition_of_the_teachers_layers(student: int, teacher: int) -> None:
    found = shares(student, teacher)
    assert len(found) == student
    assert list(chain(*(share.span for share in found))) == list(range(1, teacher + 1))
    assert found[-1].target == teacher
    sizes = [len(share.span) for share in found]
    assert max(sizes) - min(sizes) <= 1


@given(student=DEPTHS, teacher=DEPTHS)
def test_a_layer_ends_like_the_last_of_its_span(student: int, teacher: int) -> None:
    before = 0
    for i, share in enumerate(shares(student, teacher), 1):
        exact = i * teacher / student
        assert share.target == (math.ceil(exact) if student <= teacher else math.floor(exact))
        assert share.attention == (tuple(share.span) or (max(1, share.target),))
        assert share.span == range(before + 1, share.target + 1)
        before = share.target


@given(teacher=DEPTHS, more=DEPTHS)
def test_a_deeper_student_is_silent_before_it_has_something_to_do(teacher: int, more: int) -> None:
    found = shares(teacher + more, teacher)
    assert sum(not share.span for share in found) == more
    assert not found[0].span
    assert found[-1].span == range(teacher, teacher + 1)


@given(student=DEPTHS, teacher=DEPTHS, data=st.data())
def test_what_is_compared_reads_what_its_teacher_reads(
    student: int, teacher: int, data: st.DataObject
) -> None:
    layer = data.draw(st.integers(1, teacher))
    found = shares(student, teacher, compared_layer=layer)
    assert len(found) == student
    assert list(chain(*(share.span for share in found))) == list(range(1, teacher + 1))
    assert (found[-1].target, found[-1].attention) == (teacher, (layer,))
    if student > 1:
        assert found[-2].target == layer - 1
        assert found[:-1] == shares(student - 1, layer - 1)


@given(student=DEPTHS, teacher=DEPTHS, pattern=KINDS)
def test_heads_come_from_the_layers_of_the_same_kind(
    student: int, teacher: int, pattern: list[str]
) -> None:
    own, theirs = ([pattern[i % len(pattern)] for i in range(n)] for n in (student, teacher))
    for kind, share in zip(own, shares(student, teacher, own, theirs), strict=True):
        alike = tuple(j for j in share.span if theirs[j - 1] == kind)
        assert share.attention == (alike or (max(1, share.target),))


def test_a_student_of_every_second_layer() -> None:
    found = shares(3, 6)
    assert [(s.target, s.attention, list(s.span)) for s in found] == [
        (2, (1, 2), [1, 2]),
        (4, (3, 4), [3, 4]),
        (6, (5, 6), [5, 6]),
    ]

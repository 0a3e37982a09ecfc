"""Which layers of its teacher a student layer stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What one student layer takes over; layers count from 1.

    Attributes:
        target: teacher layer whose output the student's is to be, 0 for that of the embeddings.
        attention: teacher layers whose heads it chooses from, never none.
        span: teacher layers whose neurons it chooses from; empty for a layer of a student deeper
            than its teacher that has nothing to do, and so begins silent.
    """

    target: int
    attention: tuple[int, ...]
    span: range


def shares(
    student_layers: int,
    teacher_layers: int,
    student_kinds: Sequence[str] = (),
    teacher_kinds: Sequence[str] = (),
    compared_layer: int | None = None,
) -> tuple[Share, ...]:
    """Cut the teacher into one piece for each student layer, as even as can be.

    Student layer i stands for the layers (⌈(i−1)·L^T/L^S⌉, ⌈i·L^T/L^S⌉] and ends like the last of
    them. Where a student is deeper, it is (⌊(i−1)·L^T/L^S⌋, ⌊i·L^T/L^S⌋]: what is silent comes
    before what is not, since nothing else would be left to the last layer.

    Where an objective compares the last layer's queries, keys and values with those of a teacher
    layer t, what comes into it is to be what comes into that: the layers below share those below
    t, and the last one attends as t does and stands for all from there on.

    Args:
        student_layers: L^S.
        teacher_layers: L^T.
        student_kinds: of each student layer, such as global or local attention, where a family has
            kinds; then heads come from layers of the same kind alone, if the piece has any.
        teacher_kinds: of each teacher layer.
        compared_layer: t.
    """
    if compared_layer is None:
        ends = _even(student_layers, teacher_layers)
    elif student_layers == 1:
        ends = [0, teacher_layers]
    else:
        ends = [*_even(student_layers - 1, compared_layer - 1), teacher_layers]
    found: list[Share] = []
    for i in range(1, student_layers + 1):
        span = range(ends[i - 1] + 1, ends[i] + 1)
        alike = [
            j for j in span if not student_kinds or teacher_kinds[j - 1] == student_kinds[i - 1]
        ]
        found.append(Share(ends[i], tuple(alike) or (max(1, ends[i]),), span))
    if compared_layer is not None:
        found[-1] = Share(teacher_layers, (compared_layer,), found[-1].span)
    return tuple(found)


def _even(count: int, layers: int) -> list[int]:
    """Where ``count`` pieces of some layers end, with the 0 before them."""
    rounded_up = count <= layers
    return [
        -(-i * layers // count) if rounded_up else i * layers // count for i in range(count + 1)
    ]

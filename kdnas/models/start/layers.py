"""Which layers of its teacher a student layer stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What one student layer takes over; layers count from 1.

    Attributes:
        target: teacher layer whose output the student's is to be.
        attention: teacher layers whose heads it chooses from, never none.
        span: teacher layers whose neurons it chooses from; empty for a layer of a student deeper
            than its teacher that has nothing left to do, and so begins silent.
    """

    target: int
    attention: tuple[int, ...]
    span: range


def shares(
    student_layers: int,
    teacher_layers: int,
    student_kinds: Sequence[str] = (),
    teacher_kinds: Sequence[str] = (),
) -> tuple[Share, ...]:
    """Cut the teacher into one piece for each student layer, as even as can be.

    Student layer i stands for the layers (⌈(i−1)·L^T/L^S⌉, ⌈i·L^T/L^S⌉] and ends like the last of
    them.

    Args:
        student_layers: L^S.
        teacher_layers: L^T.
        student_kinds: of each student layer, such as global or local attention, where a family has
            kinds; then heads come from layers of the same kind alone, if the piece has any.
        teacher_kinds: of each teacher layer.
    """
    ends = [-(-i * teacher_layers // student_layers) for i in range(student_layers + 1)]
    found: list[Share] = []
    for i in range(1, student_layers + 1):
        span = range(ends[i - 1] + 1, ends[i] + 1)
        alike = [
            j for j in span if not student_kinds or teacher_kinds[j - 1] == student_kinds[i - 1]
        ]
        found.append(Share(ends[i], tuple(alike) or (ends[i],), span))
    return tuple(found)

"""Which layers of its teacher a student layer stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Share:
    """What one student layer takes over; layers count from 1.

    Attributes:
        target: teacher layer whose output the student's is to be.
        attention: teacher layer whose attention it has.
        span: teacher layers whose neurons it chooses from; empty for a layer of a student deeper
            than its teacher that has nothing left to do, and so begins silent.
    """

    target: int
    attention: int
    span: range


def shares(
    student_layers: int,
    teacher_layers: int,
    student_kinds: Sequence[str] = (),
    teacher_kinds: Sequence[str] = (),
) -> tuple[Share, ...]:
    """Cut the teacher into one piece for each student layer, as even as can be.

    Student layer i stands for the layers (⌈(i−1)·L^T/L^S⌉, ⌈i·L^T/L^S⌉], ends like the last of
    them, and has its attention.

    Args:
        student_layers: L^S.
        teacher_layers: L^T.
        student_kinds: of each student layer, such as global or local attention, where a family has
            kinds; then the last layer of the same kind in the piece gives the attention, if any.
        teacher_kinds: of each teacher layer.
    """
    ends = [-(-i * teacher_layers // student_layers) for i in range(student_layers + 1)]
    found: list[Share] = []
    for i in range(1, student_layers + 1):
        span, attention = range(ends[i - 1] + 1, ends[i] + 1), ends[i]
        if student_kinds:
            alike = [j for j in span if teacher_kinds[j - 1] == student_kinds[i - 1]]
            attention = alike[-1] if alike else attention
        found.append(Share(ends[i], attention, span))
    return tuple(found)


def head_groups(teacher_heads: int, student_heads: int) -> list[range]:
    """Which adjacent teacher heads each student head stands for.

    With more heads than its teacher a student has several for one; they are equal ranges.
    """
    if student_heads < teacher_heads:
        cuts = [g * teacher_heads // student_heads for g in range(student_heads + 1)]
        return [range(a, b) for a, b in pairwise(cuts)]
    base, extra = divmod(student_heads, teacher_heads)
    return [range(k, k + 1) for k in range(teacher_heads) for _ in range(base + (k < extra))]

"""Relation heads: into how many parts the concatenated queries, keys or values are cut.

They need not match the attention heads of either model, only divide both widths (Wang §3.1).
"""

from __future__ import annotations

from math import gcd

from kdnas.architecture import Architecture
from kdnas.records import TeacherShape

_OFFERED = 4


def relation_heads_problem(heads: int, student: Architecture, teacher: TeacherShape) -> str | None:
    """Say which width the heads do not divide and which numbers would fit, or None if they do."""
    fitting = common_divisors(student.hidden, teacher.hidden)
    if heads in fitting:
        return None
    offered = [n for n in fitting if n < heads][-_OFFERED:]
    choice = f"--relation-heads {_one_of(offered)}"
    if teacher.hidden % heads:
        return (
            f"{heads} relation heads do not divide the teacher's hidden size {teacher.hidden}; "
            f"choose {choice}, which divide it and the student's {student.hidden}"
        )
    return (
        f"{heads} relation heads do not divide the student's hidden size {student.hidden}; choose "
        f"a hidden size that is a multiple of {heads}, or {choice}"
    )


def common_divisors(one: int, other: int) -> list[int]:
    """Return the numbers that divide both, ascending."""
    common = gcd(one, other)
    return [n for n in range(1, common + 1) if common % n == 0]


def _one_of(numbers: list[int]) -> str:
    """Word a choice, as in "2, 4 or 8"."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last

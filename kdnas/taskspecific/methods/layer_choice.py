"""Which teacher layers a student's inner layers are matched with, where that has to be chosen."""

from __future__ import annotations

from kdnas.errors import SpecError
from kdnas.taskspecific.methods.base import Setting


def matched_layers(setting: Setting) -> tuple[int, ...]:
    """Return the teacher layer of each inner layer 1 … M − 1 of the student.

    * ``skip``: ⌊j·N/M⌋, every (N/M)-th layer: 3, 6, 9 of 12 for a student of 4 (Sun et al. 2019);
    * ``last``: N − M + j, the last ones before the last: 9, 10, 11.

    Where M does not divide N the first is rounded down but at least j, so that layers rise and
    stay below N.

    Raises:
        SpecError: layers are given, and not one for each inner layer; or the student is deeper.
    """
    n, m = setting.teacher.layers, setting.student.layers
    if m > n:
        raise SpecError(
            f"a student of {m} layers has more than its teacher's {n}, so that layers cannot be "
            "matched one by one; choose a shallower student or a Universal-KD method"
        )
    given = setting.teacher_layers
    if given is not None:
        check_layers(given, n)
        if len(given) != m - 1:
            raise SpecError(
                f"teacher_layers {list(given)} are {len(given)} for the {m - 1} inner layers of a "
                f"student of {m}; give one for each, in order"
            )
        return given
    if setting.layer_choice == "last":
        return tuple(n - m + j for j in range(1, m))
    return tuple(j * n // m for j in range(1, m))


def chosen_layers(setting: Setting) -> tuple[int, ...]:
    """Return the teacher layers that are given; all of them where none are.

    Raises:
        SpecError: the teacher has no such layer.
    """
    given = setting.teacher_layers
    if given is None:
        return tuple(range(1, setting.teacher.layers + 1))
    check_layers(given, setting.teacher.layers)
    return given


def check_layers(layers: tuple[int, ...], count: int) -> None:
    """Refuse layers that a teacher does not have.

    Raises:
        SpecError: names the first.
    """
    stray = next((layer for layer in layers if not 1 <= layer <= count), None)
    if stray is not None:
        raise SpecError(
            f"layer {stray} is none of the teacher's {count}; give layers from 1 to {count}"
        )

"""Which students a method of distillation for one task can teach, as far as requests show it.

The methods themselves say so when they are made, which takes torch; here nothing is asked for that
could only fail.
"""

from __future__ import annotations

from typing import Final

OF_INNER_LAYERS: Final = frozenset({"pkd", "mhkd", "alp-kd", "universal-kd-il", "universal-kd-ca"})
"""Methods that teach the inner layers of a student, of which there must be one."""
OF_MATCHED_LAYERS: Final = frozenset({"pkd", "mhkd"})
"""Methods that match each inner layer with one of the teacher's."""
OF_TRANSFORMERS, OF_OTHERS = "universal-kd-il", "universal-kd-ca"
"""One formula (Eq. 7 and 9 of Wu et al. 2021), named by whether the student is a Transformer."""
ASSISTED: Final = frozenset({"takd"})
"""Methods that put a student of a depth in between."""


def misfit(
    method: str, layers: int, teacher_layers: int | None, *, transformer: bool = True
) -> str | None:
    """Say why a method cannot teach a student of so many layers; None if it can.

    Args:
        method: its name.
        layers: of the student.
        teacher_layers: of the teacher; None where they are not known, and what hangs on them is
            taken to be fine.
        transformer: whether the student is one.
    """
    if method == (OF_OTHERS if transformer else OF_TRANSFORMERS):
        other = OF_TRANSFORMERS if transformer else OF_OTHERS
        kind = "are no Transformers" if transformer else "are Transformers"
        return f"{method} is for students that {kind}; take {other}, which has the same formula"
    if method in OF_INNER_LAYERS and layers < 2:
        return f"{method} teaches the inner layers of a student, and it has none"
    if teacher_layers is None:
        return None
    if method in OF_MATCHED_LAYERS and layers > teacher_layers:
        return f"{method} matches its layers with the teacher's {teacher_layers}, which are fewer"
    between = (layers + teacher_layers + 1) // 2
    if method in ASSISTED and not layers < between < teacher_layers:
        return (
            f"{method} needs an assistant of a depth between its {layers} layers and the "
            f"teacher's {teacher_layers}, and there is none"
        )
    return None

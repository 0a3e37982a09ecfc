"""Layer mappings g(i): which teacher layers a student layer learns (science §2).

With k = ⌈L^T/L^S⌉ the printed formulas leave [1, L^T] when L^S does not divide L^T, so ours are
written with ratios. They equal the printed ones whenever L^S divides L^T, stay inside [1, L^T]
and increase strictly. Layers count from 1 on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdnas.errors import LayerMappingError, unknown_name

LayerMapping = dict[int, tuple[int, ...]]


def single(i: int, student: int, teacher: int) -> set[int]:
    """{L^T} for the last student layer, nothing for the others (Udagawa §4)."""
    return {teacher} if i == student else set()


def last(i: int, student: int, teacher: int) -> set[int]:
    """{L^T − L^S + i} (Udagawa §4)."""
    return {teacher - student + i}


def uniform(i: int, student: int, teacher: int) -> set[int]:
    """{⌈i·L^T/L^S⌉} (Udagawa §4, there k·i)."""
    return {-(-i * teacher // student)}


def uniform_consecutive(i: int, student: int, teacher: int) -> set[int]:
    """The layers in (⌈(i−1)·L^T/L^S⌉, ⌈i·L^T/L^S⌉] (Udagawa §4, there [k(i−1), k·i]).

    The printed closed interval has k + 1 layers and includes layer 0; this is the partition that
    the paper's words describe.
    """
    low, high = -(-(i - 1) * teacher // student), -(-i * teacher // student)
    return set(range(low + 1, high + 1))


def uniform_last(i: int, student: int, teacher: int) -> set[int]:
    """``uniform`` ∪ ``last`` (Udagawa §4)."""
    return uniform(i, student, teacher) | last(i, student, teacher)


def kdnas(i: int, student: int, teacher: int) -> set[int]:
    """{⌊(i−1)·L^T/L^S⌋ + 1, L^T − L^S + i} (Trivedi Eq. 2, there (i−1)·⌈L^T/L^S⌉ + 1)."""
    return {(i - 1) * teacher // student + 1, teacher - student + i}


MAPPINGS: dict[str, Callable[[int, int, int], set[int]]] = {
    "single": single,
    "last": last,
    "uniform": uniform,
    "uniform_consecutive": uniform_consecutive,
    "uniform_last": uniform_last,
    "kdnas": kdnas,
}


def layer_mapping(
    mapping: str | Mapping[int, tuple[int, ...]], student_layers: int, teacher_layers: int
) -> LayerMapping:
    """Return student layer → teacher layers, ascending, for every student layer that learns.

    Args:
        mapping: one of the six names, or an explicit mapping.
        student_layers: L^S.
        teacher_layers: L^T.

    Raises:
        LayerMappingError: a student deeper than its teacher, an unknown name, or an explicit
            mapping outside the two models or without the pair (L^S, L^T), on which the `output`
            loss is read.
    """
    if student_layers > teacher_layers:
        raise LayerMappingError(
            f"a student of {student_layers} layers cannot map to a teacher of {teacher_layers}; "
            f"choose at most {teacher_layers} layers"
        )
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise LayerMappingError(unknown_name("layer mapping", mapping, MAPPINGS))
        sets = {
            i: MAPPINGS[mapping](i, student_layers, teacher_layers)
            for i in range(1, student_layers + 1)
        }
    else:
        sets = {int(i): set(layers) for i, layers in mapping.items()}
        for i, layers in sets.items():
            if not 1 <= i <= student_layers:
                raise LayerMappingError(
                    f"student layer {i} of the mapping is outside 1 … {student_layers}"
                )
            if outside := [j for j in layers if not 1 <= j <= teacher_layers]:
                raise LayerMappingError(
                    f"teacher layer {outside[0]} of the mapping is outside 1 … {teacher_layers}"
                )
        if teacher_layers not in sets.get(student_layers, set()):
            raise LayerMappingError(
                f"the mapping must teach student layer {student_layers} with teacher layer "
                f"{teacher_layers}, the pair that students of every depth share; add it"
            )
    return {i: tuple(sorted(layers)) for i, layers in sorted(sets.items()) if layers}

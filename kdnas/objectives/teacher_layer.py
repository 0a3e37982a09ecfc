"""The one teacher layer that the relation objectives learn from (science §3)."""

from __future__ import annotations

from kdnas.errors import LayerMappingError
from kdnas.records import TeacherShape

_OF_24_LAYERS = {"bert": 21, "electra": 21, "roberta": 19, "xlm-roberta": 19}


def automatic_teacher_layer(shape: TeacherShape) -> int:
    """Choose the teacher layer by depth and family; layers count from 1.

    A teacher of 12 layers teaches with layer 11 (Trivedi App. E, Udagawa's multilingual rows); one
    of 24 with layer 21 (BERT, ELECTRA) or 19 (RoBERTa, XLM-R; Wang §3.2); any other with
    round(0.85·L^T), halves to the even number, at least 1.
    """
    if shape.layers == 12:
        return 11
    if shape.layers == 24 and shape.model_type in _OF_24_LAYERS:
        return _OF_24_LAYERS[shape.model_type]
    return max(1, round(0.85 * shape.layers))


def teacher_layer_problem(given: int | None, shape: TeacherShape) -> str | None:
    """Say why there is no such teacher layer and what to do; None if there is, or none is given."""
    if given is None or 1 <= given <= shape.layers:
        return None
    return (
        f"teacher layer {given} is outside 1 … {shape.layers}, the layers of the teacher; choose "
        f"one of these, or auto, which takes layer {automatic_teacher_layer(shape)}"
    )


def teacher_layer(given: int | None, shape: TeacherShape) -> int:
    """Return the given layer, or the automatic one for None.

    Raises:
        LayerMappingError: the teacher has no such layer.
    """
    if problem := teacher_layer_problem(given, shape):
        raise LayerMappingError(problem)
    return automatic_teacher_layer(shape) if given is None else given

"""The start by copied layers: for students that differ from their teacher in depth alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.errors import ArchitectureError
from kdnas.models.families import Family
from kdnas.records import TeacherShape
from kdnas.search_space import AXES
from kdnas.specs.parts import Start

OTHERWISE = "the start teacher"


def start_problem(init: Start, student: Architecture, teacher: TeacherShape) -> str | None:
    """Say why a student of this teacher cannot have this start, or None if it can."""
    if init != "copy":
        return None
    return copy_problem(asdict(student), asdict(teacher), OTHERWISE)


def copy_layers(student: nn.Module, teacher: nn.Module, family: Family) -> None:
    """Copy embeddings and layers (Sanh et al. 2019), by the mapping ``uniform``.

    Layer i comes from layer ⌈i·L^T/L^S⌉.

    Raises:
        ArchitectureError: the student differs from its teacher in more than depth.
    """
    own, wanted = (family.axes(model.config) for model in (student, teacher))
    if problem := copy_problem(own, wanted, OTHERWISE):
        raise ArchitectureError(problem)
    layers, sources = map(family.transformer_layers, (student, teacher))
    copy_embeddings(student, teacher)
    parts: list[tuple[nn.Module, nn.Module]] = []
    if family.final:
        parts.append((student.get_submodule(family.final), teacher.get_submodule(family.final)))
    for i, layer in enumerate(layers, 1):
        parts.append((layer, sources[-(-i * len(sources) // len(layers)) - 1]))
    for part, source in parts:
        values = source.state_dict()  # ModernBERT's first layer lacks a norm that others have
        part.load_state_dict({name: values[name] for name in part.state_dict()})


def copy_embeddings(student: nn.Module, teacher: nn.Module) -> None:
    """Copy embeddings of the same width whole, and with them what widens factorised ones."""
    for part in ("embeddings", "embeddings_project"):
        if hasattr(student, part):
            student.get_submodule(part).load_state_dict(teacher.get_submodule(part).state_dict())


def copy_problem(
    student: Mapping[str, Any],
    teacher: Mapping[str, Any],
    otherwise: str,
    if_deeper: str | None = None,
) -> str | None:
    """Say why a student cannot have copies of its teacher's layers, or None if it can.

    Args:
        student: its axes.
        teacher: likewise.
        otherwise: what to choose instead of another student, such as ``the start teacher``.
        if_deeper: what instead of one of fewer layers, if that is something else.
    """
    for axis in AXES[1:]:
        if student[axis] != teacher[axis]:
            problem = (
                f"a student with {axis} {student[axis]} cannot copy layers of a teacher with "
                f"{axis} {teacher[axis]}"
            )
            if axis == "activation" and teacher[axis] not in ACTIVATIONS:
                return f"{problem}, which no student has; choose {otherwise}"
            return f"{problem}; choose {axis} {teacher[axis]}, or {otherwise}"
    if student["layers"] > teacher["layers"]:
        return (
            f"a student of {student['layers']} layers cannot copy those of a teacher of "
            f"{teacher['layers']}; choose at most {teacher['layers']}, or {if_deeper or otherwise}"
        )
    return None

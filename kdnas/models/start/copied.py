"""The start by copied layers: for students that differ from their teacher in depth alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.models.families import Family
from kdnas.records import TeacherShape
from kdnas.search_space import AXES
from kdnas.specs.parts import Start


def start_problem(init: Start, student: Architecture, teacher: TeacherShape) -> str | None:
    """Say why a student of this teacher cannot have this start, or None if it can."""
    if init != "copy":
        return None
    return _copy_problem(asdict(student), {axis: getattr(teacher, axis) for axis in AXES})


def copy_layers(student: nn.Module, teacher: nn.Module, family: Family) -> None:
    """Copy embeddings and layers (Sanh et al. 2019), by the mapping ``uniform``.

    Layer i comes from layer ⌈i·L^T/L^S⌉.

    Raises:
        ArchitectureError: the student differs from its teacher in more than depth.
    """
    own, wanted = (family.axes(model.config) for model in (student, teacher))
    if problem := _copy_problem(own, wanted):
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


def _copy_problem(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    for axis in AXES[1:]:
        if own[axis] != wanted[axis]:
            return (
                f"a student with {axis} {own[axis]} cannot copy layers of a teacher with {axis} "
                f"{wanted[axis]}; choose {axis} {wanted[axis]}, or the start teacher"
            )
    if own["layers"] > wanted["layers"]:
        return (
            f"a student of {own['layers']} layers cannot copy those of a teacher of "
            f"{wanted['layers']}; choose at most {wanted['layers']}, or the start teacher"
        )
    return None

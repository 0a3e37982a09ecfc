"""From an objective's spec to its stages: one for most, several for a run that changes its goal."""

from __future__ import annotations

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.models.families import family_problem
from kdnas.objectives.base import Stage
from kdnas.plugins import build_named, import_named
from kdnas.records import TeacherShape
from kdnas.specs.objective_base import ObjectiveSpec


def build_stages(spec: ObjectiveSpec) -> tuple[Stage, ...]:
    """Return the stages that a spec names, in order; its entry says where they are made.

    Raises:
        SpecError: what is to make them cannot be imported, raises something, or makes something
            else.
    """
    maker = import_named("objective", spec.implementation)
    stages = build_named("objective", spec.implementation, maker, spec)
    if not (stages and isinstance(stages, tuple) and all(isinstance(s, Stage) for s in stages)):
        raise SpecError(
            f"objective {spec.name!r} is made by {spec.implementation!r}, which gave {stages!r}; "
            "return a tuple of kdnas.objectives.base.Stage"
        )
    return stages


def objective_problem(
    spec: ObjectiveSpec, student: Architecture, teacher: TeacherShape
) -> str | None:
    """Say why this teacher cannot teach this student so, or None if it can."""
    if problem := family_problem(student, teacher):
        return problem
    problems = (s.objective.problem(student, teacher) for s in build_stages(spec))
    return next((problem for problem in problems if problem), None)

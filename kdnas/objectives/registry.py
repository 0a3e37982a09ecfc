"""From an objective's spec to its stages: one for most, two for the multi-stage run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kdnas.architecture import Architecture
from kdnas.models.families import family_problem
from kdnas.objectives.base import Objective
from kdnas.objectives.direct_minilm import DirectMiniLM
from kdnas.objectives.distilbert import DistilBert
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.minilmv2 import MiniLMv2
from kdnas.objectives.output_distribution import OutputDistribution
from kdnas.records import TeacherShape
from kdnas.specs.objectives import (
    DirectMiniLMSpec,
    DistilBertSpec,
    HiddenStateSpec,
    MiniLMv2Spec,
    MultiStageSpec,
    ObjectiveSpec,
    OutputSpec,
)


@dataclass(frozen=True)
class Stage:
    """A stretch of training on one objective.

    Attributes:
        objective: what is learned.
        share: of all steps.
        rate: of the peak learning rate; each stage warms up and decays by itself.
    """

    objective: Objective
    share: float = 1.0
    rate: float = 1.0


def build_stages(spec: ObjectiveSpec) -> tuple[Stage, ...]:
    """Return the stages that a spec names, in order."""
    return _STAGES[spec.name](spec)


def objective_problem(
    spec: ObjectiveSpec, student: Architecture, teacher: TeacherShape
) -> str | None:
    """Say why this teacher cannot teach this student so, or None if it can."""
    if problem := family_problem(student, teacher):
        return problem
    problems = (s.objective.problem(student, teacher) for s in build_stages(spec))
    return next((problem for problem in problems if problem), None)


def _hidden_state(spec: HiddenStateSpec) -> tuple[Stage, ...]:
    return (Stage(HiddenState(spec.mapping, spec.last_weight)),)


def _minilmv2(spec: MiniLMv2Spec) -> tuple[Stage, ...]:
    return (
        Stage(MiniLMv2(spec.weighted_relations(), spec.relation_heads, spec.known_teacher_layer)),
    )


def _direct_minilm(spec: DirectMiniLMSpec) -> tuple[Stage, ...]:
    return (Stage(DirectMiniLM(spec.relation_heads, spec.known_teacher_layer, spec.orthogonal)),)


def _output(spec: OutputSpec) -> tuple[Stage, ...]:
    return (Stage(OutputDistribution(spec.temperature, spec.positions)),)


def _distilbert(spec: DistilBertSpec) -> tuple[Stage, ...]:
    return (Stage(DistilBert(spec.temperature, spec.weights)),)


def _multi_stage(spec: MultiStageSpec) -> tuple[Stage, ...]:
    return (
        Stage(HiddenState(spec.mapping, spec.last_weight), spec.hs_share),
        Stage(
            OutputDistribution(spec.temperature, spec.positions), 1 - spec.hs_share, spec.od_rate
        ),
    )


_STAGES: dict[str, Callable[[Any], tuple[Stage, ...]]] = {
    "hs": _hidden_state,
    "minilmv2": _minilmv2,
    "direct-minilm": _direct_minilm,
    "od": _output,
    "distilbert": _distilbert,
    "hs+od": _multi_stage,
}

"""From an objective's spec to the objective."""

from __future__ import annotations

from kdnas.objectives.base import Objective
from kdnas.objectives.hidden_state import HiddenState
from kdnas.specs.parts import ObjectiveSpec


def build_objective(spec: ObjectiveSpec) -> Objective:
    """Return the objective that a spec names."""
    return HiddenState(mapping=spec.mapping)

"""Hidden states first, then output distributions from there (Udagawa §4, multi-stage)."""

from __future__ import annotations

from kdnas.objectives.base import Stage
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.output_distribution import OutputDistribution
from kdnas.specs.objectives import MultiStageSpec


def stages(spec: MultiStageSpec) -> tuple[Stage, ...]:
    """Return the two stages of a spec."""
    outputs = OutputDistribution(spec.temperature, spec.positions)
    return (
        Stage(HiddenState(spec.mapping, spec.last_weight), spec.hs_share),
        Stage(outputs, 1 - spec.hs_share, spec.od_rate),
    )

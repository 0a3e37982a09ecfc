"""From a request's length to the steps of each of its stages."""

from __future__ import annotations

from dataclasses import dataclass

from kdnas.errors import SpecError
from kdnas.objectives.base import Objective, Stage

CURVE_POINTS = 50


@dataclass(frozen=True)
class StagePlan:
    """The steps that are trained on one objective.

    Attributes:
        objective: what is learned.
        first_step: steps made before, in earlier stages.
        steps: steps of this stage.
        total_steps: steps of all stages.
        rate: of the peak learning rate.
    """

    objective: Objective
    first_step: int
    steps: int
    total_steps: int
    rate: float = 1.0

    @property
    def end(self) -> int:
        """Steps made when the stage is over."""
        return self.first_step + self.steps

    @property
    def curve_every(self) -> int:
        """Steps between two points of the curve."""
        return max(1, self.total_steps // CURVE_POINTS)


def plan_stages(stages: tuple[Stage, ...], total_steps: int) -> tuple[StagePlan, ...]:
    """Share the steps out among the stages; each gets one at least.

    Of no steps at all the last stage is left, whose losses tell a student as it starts from one
    that was distilled to the end.

    Raises:
        SpecError: there are fewer steps than stages.
    """
    if total_steps == 0:
        return (StagePlan(stages[-1].objective, 0, 0, 0, stages[-1].rate),)
    if total_steps < len(stages):
        steps = "1 step is" if total_steps == 1 else f"{total_steps} steps are"
        raise SpecError(f"{steps} too few for {len(stages)} stages; give more `steps`")
    plans: list[StagePlan] = []
    first, share = 0, 0.0
    for left, stage in zip(range(len(stages) - 1, -1, -1), stages, strict=True):
        share += stage.share
        end = min(max(round(share * total_steps), first + 1), total_steps - left)
        plans.append(StagePlan(stage.objective, first, end - first, total_steps, stage.rate))
        first = end
    return tuple(plans)

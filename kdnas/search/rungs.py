"""Rungs: which students are not worth the rest of their training (docs/science.md).

What a student must have reached at a rung is decided before it is sent to a worker, and from
finished episodes alone. So it depends neither on how students are grouped nor on how many workers
there are, and a search that was cut off decides the same again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kdnas.records import Candidate, LossName, Rung
from kdnas.search.hypervolume import Covered
from kdnas.search.protocols import SearchProblem

FEWEST_PAIRS = 8
"""Students that a rung must know before it stops one."""
DEVIATIONS = 2.0
"""By so many standard deviations of the residuals a student may turn out better than foretold."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a loss at a rung foretells: final loss ≈ intercept + slope · reading.

    Attributes:
        intercept: of the line.
        slope: of the line.
        deviation: standard deviation of what the line leaves over.
    """

    intercept: float
    slope: float
    deviation: float

    @classmethod
    def through(cls, pairs: Sequence[tuple[float, float]]) -> Line | None:
        """Fit it by least squares; None if there are too few pairs, or none can be told.

        Args:
            pairs: (reading, final loss) of each student.
        """
        if len(pairs) < FEWEST_PAIRS or len({reading for reading, _ in pairs}) < 2:
            return None
        readings, finals = zip(*pairs, strict=True)
        slope, intercept = statistics.linear_regression(readings, finals)
        left = math.fsum((y - intercept - slope * x) ** 2 for x, y in pairs)
        line = cls(intercept, slope, math.sqrt(left / (len(pairs) - 2)))
        return line if all(map(math.isfinite, (intercept, slope, line.deviation))) else None

    def __call__(self, reading: float) -> float:
        """The final loss that a reading foretells; no loss is below 0."""
        return max(0.0, self.intercept + self.slope * reading)

    def most(self, wanted: float) -> float:
        """The highest reading with which a final loss may still be as low as is wanted.

        Infinite where high readings do not foretell high losses.
        """
        if self.slope <= 0:
            return math.inf
        highest = (wanted - self.intercept + DEVIATIONS * self.deviation) / self.slope
        return math.inf if math.isnan(highest) else highest


def lines(candidates: Iterable[Candidate], steps: Sequence[int], loss: LossName) -> dict[int, Line]:
    """Fit the line of each rung that has one.

    Only students that were trained in this search and have learned count. That others were stopped
    by their readings hardly bends a line that is fitted on readings.

    Args:
        candidates: of finished episodes.
        steps: of the rungs.
        loss: that is foretold, from itself.
    """
    pairs: dict[int, list[tuple[float, float]]] = {step: [] for step in steps}
    for candidate in candidates:
        if candidate.status != "succeeded" or candidate.losses is None:
            continue
        for reading in candidate.readings:
            if reading.step in pairs:
                pair = (reading.losses.named(loss), candidate.losses.named(loss))
                pairs[reading.step].append(pair)
    found = {step: Line.through(known) for step, known in pairs.items()}
    return {step: line for step, line in found.items() if line is not None}


def wanted_losses(
    problem: SearchProblem, known: Mapping[int, float], keep: int
) -> Callable[[int], float]:
    """Say up to which final loss a state would be wanted.

    With the goal ``front`` that is the loss below which it adds to the hypervolume; with the others
    the one that gives it the reward of the state that is number ``keep`` by now.

    Args:
        problem: what is known of the states, and the goal.
        known: index → loss, of the states that were trained to the end.
        keep: how many of the best are kept.

    Returns:
        Index → loss; infinite while everything is wanted.
    """
    if problem.goal == "front":
        covered = Covered(np.array([*known.values()]), problem.speed_ups[[*known]])

        def level(index: int) -> float:
            return -float(covered.excess(np.zeros(1), problem.speed_ups[[index]])[0])

        return level
    rewards = sorted((problem.reward_of(i, loss) for i, loss in known.items()), reverse=True)
    if len(rewards) < keep:
        return lambda _: math.inf
    return lambda index: 1 - rewards[keep - 1] / float(problem.prices[index])


def rungs_of(known: Mapping[int, Line], wanted: float, loss: LossName) -> tuple[Rung, ...]:
    """The rungs at which a student may be stopped.

    Args:
        known: step → line.
        wanted: the highest final loss with which the student would be wanted.
        loss: that is meant.
    """
    asked = [Rung(step, line.most(wanted), loss) for step, line in sorted(known.items())]
    return tuple(rung for rung in asked if rung.most < math.inf)


def foretold(candidate: Candidate, known: Mapping[int, Line], loss: LossName) -> float:
    """The final loss that the last reading of a stopped student foretells.

    Args:
        candidate: one that was stopped.
        known: step → line; where there is none any more, the reading stands for itself.
        loss: that is meant.
    """
    last = candidate.readings[-1]
    reading, line = last.losses.named(loss), known.get(last.step)
    return reading if line is None else line(reading)


def steps_saved(candidates: Iterable[Candidate]) -> float | None:
    """Share of the steps of a search's trainings that its rungs have saved.

    None if they have stopped nobody. Only trainings that ended well or at a rung count.
    """
    trained = [(c.status, c.num_steps) for c in candidates if c.num_steps is not None]
    whole = [steps for status, steps in trained if status == "succeeded"]
    ended = [steps for status, steps in trained if status == "stopped"]
    if not whole or not ended:
        return None
    return 1 - (sum(whole) + sum(ended)) / ((len(whole) + len(ended)) * max(whole))


def stopped_note(step: int, whole: int | None, reading: float, line: Line, wanted: float) -> str:
    """Say why a student was stopped."""
    of = "" if whole is None else f" of {whole}"
    limit = f"no more than {wanted:.3f} is wanted" if wanted > 0 else "no loss is low enough"
    return (
        f"stopped after {step}{of} steps: a loss of {reading:.3f} by then foretells "
        f"{line(reading):.3f}, and at its latency {limit}"
    )

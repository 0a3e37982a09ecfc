"""How much of loss against latency a set of students covers (Zitzler & Thiele 1999).

The reference is the teacher's latency and a loss of 1, that of a student that ignores its input.
Latency counts by halvings, so the hypervolume is the share of the signal that is explained, added
up over the speed-ups at which there is a student: with 0.8 of it at half the latency and nothing
faster, 0.8. A student that is not faster than its teacher covers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


class Covered:
    """The region that no student added so far leaves open.

    Attributes:
        volume: hypervolume of what was added, in halvings of the teacher's latency.
    """

    def __init__(self) -> None:
        # Between two speed-ups the level is the lowest loss of a student at least that fast; from
        # the reference (speed-up 0) upwards.
        self._ends: Array = np.zeros(1)
        self._levels: Array = np.ones(0)
        self.volume = 0.0

    def gains(self, losses: Array, ratios: Array) -> Array:
        """What each student alone would add to the volume.

        Args:
            losses: (N,).
            ratios: (N,) latency as a share of the teacher's, above 0.

        Returns:
            (N,), at least 0.
        """
        ups, levels = -np.log2(ratios), np.clip(losses, 0.0, 1.0)
        width = np.clip(ups[:, None], self._ends[:-1], self._ends[1:]) - self._ends[:-1]
        height = np.maximum(self._levels - levels[:, None], 0.0)
        beyond = np.maximum(ups - self._ends[-1], 0.0) * (1.0 - levels)
        gained: Array = (width * height).sum(axis=1) + beyond
        return gained

    def excess(self, losses: Array, ratios: Array) -> Array:
        """By how much each loss is above the lowest one at its latency or less: (N,)."""
        ups = -np.log2(ratios)
        places = np.clip(np.searchsorted(self._ends, ups) - 1, 0, len(self._levels))
        levels = np.append(self._levels, 1.0)[places]
        above: Array = losses - np.where(ups > 0, levels, 0.0)
        return above

    def add(self, loss: float, ratio: float) -> None:
        """Cover what a student covers."""
        self.volume += float(self.gains(np.array([loss]), np.array([ratio]))[0])
        up, level = -float(np.log2(ratio)), min(max(loss, 0.0), 1.0)
        if up <= 0:
            return
        place = int(np.searchsorted(self._ends, up))
        if place == len(self._ends):
            self._ends, self._levels = np.append(self._ends, up), np.append(self._levels, 1.0)
        elif self._ends[place] != up:
            self._ends = np.insert(self._ends, place, up)
            self._levels = np.insert(self._levels, place - 1, self._levels[place - 1])
        self._levels[:place] = np.minimum(self._levels[:place], level)


def contributions(front: Sequence[tuple[float, float]]) -> list[float]:
    """What the volume of a Pareto front would lose without each of its students.

    Args:
        front: (loss, latency as a share of the teacher's) of each, the fastest first.
    """
    levels = np.clip([1.0, *(loss for loss, _ in front)], 0.0, 1.0)
    ups = np.maximum(-np.log2([*(ratio for _, ratio in front), 1.0]), 0.0)
    lost: list[float] = (np.diff(levels) * np.diff(ups)).tolist()
    return lost


def hypervolume(points: Sequence[tuple[float, float]]) -> float:
    """Hypervolume of students.

    Args:
        points: (loss, latency as a share of the teacher's) of each.
    """
    covered = Covered()
    for loss, ratio in points:
        covered.add(loss, ratio)
    return covered.volume

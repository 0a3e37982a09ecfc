"""How much of loss against latency a set of students covers (Zitzler & Thiele 1999).

The reference is the teacher's latency and a loss of 1, that of a student that ignores its input.
Latency counts by halvings, so the hypervolume is the share of the signal that is explained, added
up over the speed-ups at which there is a student: with 0.8 of it at half the latency and nothing
faster, 0.8. A student that is not faster than its teacher covers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

_NOTHING: Final = np.zeros(0)


class Covered:
    """The region that some students cover.

    Between two speed-ups the level is the lowest loss of a student that is at least so fast; from
    the reference (no speed-up) upwards.

    Args:
        losses: (N,).
        ups: (N,) speed-ups, in halvings of the teacher's latency.
    """

    def __init__(self, losses: Array = _NOTHING, ups: Array = _NOTHING) -> None:
        self._cover(ups, np.clip(losses, 0.0, 1.0))

    @property
    def volume(self) -> float:
        """Hypervolume, in halvings of the teacher's latency."""
        return float(np.diff(self._ends) @ (1 - self._levels))

    def gains(self, losses: Array, ups: Array) -> Array:
        """What each student alone would add to the volume.

        Args:
            losses: (N,).
            ups: (N,) speed-ups, in halvings of the teacher's latency.

        Returns:
            (N,), at least 0.
        """
        # Levels rise with the speed-up, so a student adds from where they are first above its loss.
        levels = np.clip(losses, 0.0, 1.0)
        since = self._ends[np.searchsorted(self._levels, levels, side="right")]
        gained = self._below(ups) - self._below(since) - levels * (ups - since)
        gains: Array = np.where(ups > since, gained, 0.0)
        return gains

    def excess(self, losses: Array, ups: Array) -> Array:
        """By how much each loss is above the lowest one at its speed-up or more: (N,)."""
        above: Array = losses - np.where(ups > 0, self._level(ups)[0], 0.0)
        return above

    def add(self, loss: float, up: float) -> None:
        """Cover what one more student covers."""
        level = min(max(loss, 0.0), 1.0)
        self._cover(np.append(self._ends[1:], up), np.append(self._levels, level))

    def _cover(self, ups: Array, levels: Array) -> None:
        order = np.argsort(ups, kind="stable")[np.count_nonzero(ups <= 0) :]
        lowest = np.minimum.accumulate(levels[order][::-1])[::-1]
        steps = np.append(lowest[1:], 1.0) > lowest  # the rest lies behind others
        self._ends: Array = np.concatenate([[0.0], ups[order][steps]])
        self._levels: Array = lowest[steps]

    def _level(self, ups: Array) -> tuple[Array, npt.NDArray[np.intp]]:
        """Levels at some speed-ups, and which they are; the last one is that of nothing."""
        places = np.clip(np.searchsorted(self._ends, ups) - 1, 0, len(self._levels))
        return np.append(self._levels, 1.0)[places], places

    def _below(self, ups: Array) -> Array:
        """Integral of the level from the reference to some speed-ups."""
        level, places = self._level(ups)
        whole = np.concatenate([[0.0], np.cumsum(np.diff(self._ends) * self._levels)])
        integral: Array = whole[places] + level * (ups - self._ends[places])
        return integral


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
    losses, ratios = np.array(points, np.float64).reshape(-1, 2).T
    return Covered(losses, -np.log2(ratios)).volume

"""States of a search space as numbers that a network can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kdnas.search.protocols import Observation
from kdnas.search_space import AXES, SearchSpace

Array: TypeAlias = npt.NDArray[np.float64]

NUMERIC_AXES = AXES[:4]


class StateEncoder:
    """Encodes one step of the controller's input sequence.

    A step is, in this order: one-hot values of each of the five axes; the ordinal of each numeric
    axis, which is its rank among the axis' values scaled to [0, 1] (0 on an axis of one value);
    the known reward; and a flag, 1 in a filled memory slot. An empty slot is all zeros, and so
    are the last two numbers of a candidate, whose reward is not known.

    Attributes:
        states: (N, F) the encoded states of the space by index, as candidates.
        width: F, numbers in a step.
    """

    def __init__(self, space: SearchSpace) -> None:
        one_hot = [
            _one_hot([getattr(s, axis) for s in space.states], space.axes[axis]) for axis in AXES
        ]
        ordinal = [
            _ordinal([getattr(s, axis) for s in space.states], space.axes[axis])
            for axis in NUMERIC_AXES
        ]
        unknown = np.zeros((len(space), 2), np.float64)
        self.states: Array = np.concatenate([*one_hot, *ordinal, unknown], axis=1)  # (N, F)
        self.width: int = self.states.shape[1]

    def candidates(self, indices: Sequence[int]) -> Array:
        """Encode candidates: (C, F) for C indices."""
        return self.states[np.asarray(indices, dtype=np.intp)]

    def memory(self, *slots: Observation | None) -> Array:
        """Encode memory slots with their rewards: (S, F) for S slots."""
        steps = np.zeros((len(slots), self.width), np.float64)
        for step, slot in zip(steps, slots, strict=True):
            if slot is not None:
                step[:] = self.states[slot.index]
                step[-2:] = slot.reward, 1.0
        return steps


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x), by tanh, which cannot overflow."""
    half: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return half


def _one_hot(values: Sequence[int | str], axis: Sequence[int | str]) -> Array:
    position = {value: i for i, value in enumerate(axis)}
    return np.eye(len(axis), dtype=np.float64)[[position[value] for value in values]]


def _ordinal(values: Sequence[int], axis: Sequence[int]) -> Array:
    rank = {value: i for i, value in enumerate(sorted(axis))}
    scale = max(1, len(axis) - 1)
    return np.array([[rank[value] / scale] for value in values], np.float64)

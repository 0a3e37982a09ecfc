"""By how much seeds make the loss of a state differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Noise:
    """By how much the loss of a state differs between seeds.

    Attributes:
        sd: standard deviation of a single training, pooled over the states.
        dof: its degrees of freedom: trainings less states.
        num_states: that were trained with several seeds.
    """

    sd: float
    dof: int
    num_states: int

    @property
    def reach(self) -> float:
        """How far a single training lies from the mean of its state at most, in 95 %."""
        from scipy.special import stdtrit  # scipy.stats has it too, and takes seconds to load

        return float(stdtrit(self.dof, 0.975)) * self.sd


@dataclass(frozen=True, slots=True)
class KnownNoise(Noise):
    """What is known of the noise of a search.

    Attributes:
        table: that comes with the program and tells it; None if trainings in the database do.
    """

    table: str | None = None


def noise_of(trained: Iterable[Sequence[float]]) -> Noise | None:
    """Pool the variance within states.

    Args:
        trained: the losses of a state under its seeds, for each state.

    Returns:
        None if no state has two.
    """
    repeated = [np.asarray(losses) for losses in trained if len(losses) > 1]
    dof = sum(len(losses) - 1 for losses in repeated)
    if not dof:
        return None
    squares = sum(float(np.square(losses - losses.mean()).sum()) for losses in repeated)
    return Noise(math.sqrt(squares / dof), dof, len(repeated))

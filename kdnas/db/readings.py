"""Held-out losses of a student on its way, as columns of JSON hold them."""

from __future__ import annotations

import math

from kdnas.records import Losses, Reading


def reading_row(reading: Reading) -> list[float | None]:
    """[step, mean, relative, output, training]; the last is None before the first step."""
    found = reading.losses
    training = found.training if reading.step else None
    return [reading.step, found.mean, found.relative, found.output, training]


def reading_of(
    step: int, mean: float, relative: float, output: float, training: float | None
) -> Reading:
    """What :func:`reading_row` was made of."""
    training = math.nan if training is None else training
    return Reading(step, Losses(training, mean, relative, output))

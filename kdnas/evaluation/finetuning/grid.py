"""A grid of learning rates and epochs: its points, its trials, and which of them is the best.

A trial fine-tunes on what ``data.splitting.for_tuning`` leaves to train on, and is scored on what
that holds out, after a quarter, a half and the whole of its own steps. Trials are compared at equal
shares of their own schedules, not at equal steps: the learning rate falls over the schedule, so
that after one epoch a trial of three epochs is far along and one of ten has hardly begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import ceil
from typing import Any, Literal

from kdnas.errors import TrainingError
from kdnas.evaluation.finetuning.identity import evaluation_key
from kdnas.evaluation.settings import FinetuneSettings

QUARTERS = (1, 2, 4)
"""Quarters of its steps after which a trial is scored; after the last it has ended."""
GRID_SEED = 0
"""Of all trials: the seeds of an evaluation share what is chosen."""

Ending = Literal["finished", "pruned", "diverged"]


@dataclass(frozen=True, slots=True)
class GridPoint:
    """A learning rate and a number of epochs."""

    learning_rate: float
    epochs: float

    def __str__(self) -> str:
        return f"learning rate {self.learning_rate:g}, {self.epochs:g} epochs"

    def applied_to(self, settings: FinetuneSettings) -> FinetuneSettings:
        """Return settings with this choice in them."""
        return replace(settings, learning_rate=self.learning_rate, epochs=self.epochs)


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried.

    Attributes:
        point: what was tried.
        ending: ``pruned`` where others were better after the same share of their steps.
        scores: the task's main score after each of the ``QUARTERS`` that it came to.
    """

    point: GridPoint
    ending: Ending
    scores: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` takes them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trial:
        """Read back what :meth:`to_json` gave."""
        return cls(GridPoint(**values["point"]), values["ending"], tuple(values["scores"]))


def grid_points(settings: FinetuneSettings, num_examples: int) -> tuple[GridPoint, ...]:
    """List the points of a grid that differ.

    Where ``max_steps`` cuts all epochs, they are the same training, and one of them stands for all.

    Args:
        settings: with a grid.
        num_examples: to learn from, at least; windows of contexts are more.
    """
    grid = settings.grid
    if grid is None:
        raise ValueError("the settings have no grid")
    a_pass = ceil(num_examples / settings.batch_size)
    points: dict[tuple[float, float | None], GridPoint] = {}
    for learning_rate, epochs in product(grid.learning_rates, grid.epochs):
        cut = settings.max_steps is not None and a_pass * epochs >= settings.max_steps
        key = (learning_rate, None if cut else epochs)
        points.setdefault(key, GridPoint(learning_rate, epochs))
    return tuple(points.values())


def best_trial(trials: Iterable[Trial]) -> Trial:
    """Return the best of the trials that came to their end.

    Of equals it is the one that was better on the way, then the shortest.

    Raises:
        TrainingError: all of them diverged.
    """
    finished = [trial for trial in trials if trial.ending == "finished"]
    if not finished:
        raise TrainingError(
            "all trials of the grid diverged; give smaller rates as `grid.learning_rates`"
        )
    return max(
        finished,
        key=lambda t: (t.scores[::-1], -t.point.epochs, -t.point.learning_rate),
    )


def grid_key(
    model: str, task: str, data: str, settings: FinetuneSettings, variant: str = ""
) -> str:
    """Name a grid by what decides its outcome; arguments as those of ``evaluation_key``."""
    alike = replace(settings, early_stopping=None)  # trials have another end
    return "grid-" + evaluation_key(model, task, data, alike, GRID_SEED, variant)

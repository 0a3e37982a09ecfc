"""A grid of batch sizes, learning rates and β: its points, its trials, and the best of them.

A trial is the run of seed 0 at a point, both stages of it, and its score that of the epoch which is
chosen on the held-out examples (Wu et al. 2021, App. A, has the grid; which examples it is decided
on, the paper leaves open). What is reported in the end is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from kdnas.errors import TrainingError
from kdnas.records import fingerprint
from kdnas.specs.task_distillation import TRIED, TaskGridSpec
from kdnas.taskspecific.stages import Hyperparameters

GRID_SEED = 0
"""Of all trials: the seeds of a method share what is chosen."""
WAY = 3
"""Version of the way of training and choosing; older trials do not count for a newer one."""

TaskEnding = Literal["finished", "diverged"]


@dataclass(frozen=True, slots=True)
class TaskPoint:
    """A batch size, a learning rate, and β, which is None where it counts for nothing."""

    batch_size: int
    learning_rate: float
    beta: float | None

    def __str__(self) -> str:
        beta = "" if self.beta is None else f", β {self.beta:g}"
        return f"batch {self.batch_size}, rate {self.learning_rate:g}{beta}"

    @property
    def as_file_name(self) -> str:
        """Its name as that of a folder."""
        beta = "" if self.beta is None else f"-beta{self.beta!r}"
        return f"batch{self.batch_size}-rate{self.learning_rate!r}{beta}"

    def applied_to(self, hyper: Hyperparameters) -> Hyperparameters:
        """Return hyper-parameters with this choice in them."""
        beta = hyper.beta if self.beta is None else self.beta
        return replace(
            hyper, batch_size=self.batch_size, learning_rate=self.learning_rate, beta=beta
        )


@dataclass(frozen=True, slots=True)
class TaskTrial:
    """A point that was tried.

    Attributes:
        point: what was tried.
        ending: how.
        held_out: score on the held-out examples, of the epoch that was chosen by it; None where
            training diverged.
        curve: the same score after each epoch of both stages.
    """

    point: TaskPoint
    ending: TaskEnding
    held_out: float | None
    curve: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` takes them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskTrial:
        """Read back what :meth:`to_json` gave."""
        point = TaskPoint(**values["point"])
        return cls(point, values["ending"], values["held_out"], tuple(values["curve"]))


def task_points(
    grid: TaskGridSpec, *, uses_beta: bool, examples: int | None = None
) -> tuple[TaskPoint, ...]:
    """List the points of a grid that differ.

    Args:
        grid: what was asked for.
        uses_beta: whether β counts for the method.
        examples: to learn from, more than which no batch has; None of many.
    """
    betas: tuple[float | None, ...] = grid.betas if uses_beta else (None,)
    sizes = dict.fromkeys(min(size, examples or size) for size in grid.batch_sizes)
    values = product(sizes, grid.learning_rates, betas)
    return tuple(TaskPoint(*point) for point in values)


def best_task_trial(method: str, trials: Iterable[TaskTrial]) -> TaskTrial:
    """Return the best of the trials that came to their end.

    Of equals it is the one that was better at its end and on the way there, then the one of the
    larger batches, which is the shortest, then that of the smaller rate, then of the smaller β.

    Args:
        method: whose trials they are.
        trials: all of them, in any order.

    Raises:
        TrainingError: all of them diverged.
    """
    known = list(trials)
    finished = [trial for trial in known if trial.ending == "finished"]
    if not finished:
        raise TrainingError(
            f"all {len(known)} trials of the grid of {method} diverged; give smaller rates as "
            "`grid.learning_rates`"
        )
    return max(finished, key=_worth)


def _worth(trial: TaskTrial) -> tuple[Any, ...]:
    point = trial.point
    return (
        trial.held_out,
        trial.curve[::-1],
        point.batch_size,
        -point.learning_rate,
        -(point.beta or 0.0),
    )


def task_grid_key(
    method: str,
    points: Iterable[TaskPoint],
    hyper: Hyperparameters,
    decides: Mapping[str, Any],
) -> str:
    """Name a grid by what decides its outcome.

    Args:
        method: by which students learn.
        points: that are tried.
        hyper: all other hyper-parameters; those of points do not count.
        decides: whatever decides it beside, as plain JSON: teacher, student, data.
    """
    others = {name: value for name, value in hyper.to_json().items() if name not in TRIED}
    listed = sorted(point.as_file_name for point in points)
    return f"task-grid-{fingerprint([WAY, method, listed, others, dict(decides)])}"

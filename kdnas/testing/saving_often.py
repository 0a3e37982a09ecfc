"""Trainings for a task that save at every step, so that a kill finds a checkpoint anywhere."""

from __future__ import annotations

from typing import Any

from kdnas.models.sequence.config import SequenceConfig
from kdnas.taskspecific import training
from kdnas.testing.standing import stand_after_checkpoint

HIDDEN = 24


def save_every_step(stand_at: int | None = None) -> None:
    """Change this process: a checkpoint a step, and Bi-LSTMs and gated CNNs of 24 in place of 768.

    In their usual width a checkpoint is half a gigabyte.

    Args:
        stand_at: step after whose checkpoint it goes no further.
    """
    if stand_at is not None:
        stand_after_checkpoint(stand_at)
    training.SAVE_SECONDS = 0.0
    SequenceConfig.for_teacher = classmethod(narrow)  # type: ignore[assignment]


usual: Any = SequenceConfig.for_teacher.__func__  # type: ignore[attr-defined]


def narrow(cls: type[SequenceConfig], *arguments: Any, **options: Any) -> SequenceConfig:
    """Return a configuration of few numbers."""
    made: SequenceConfig = usual(cls, *arguments, **{"hidden": HIDDEN, **options})
    return made

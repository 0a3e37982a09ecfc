"""Trainings for a task that save at every step, so that a kill finds a checkpoint anywhere."""

from __future__ import annotations

from typing import Any

from kdnas.models.sequence.config import SequenceConfig
from kdnas.taskspecific import training

HIDDEN = 24


def save_every_step() -> None:
    """Change this process: a checkpoint a step, and Bi-LSTMs and gated CNNs of 24 in place of 768.

    In their usual width a checkpoint is half a gigabyte.
    """
    training.SAVE_SECONDS = 0.0
    SequenceConfig.for_teacher = classmethod(narrow)  # type: ignore[assignment]


usual: Any = SequenceConfig.for_teacher.__func__  # type: ignore[attr-defined]


def narrow(cls: type[SequenceConfig], *arguments: Any, **options: Any) -> SequenceConfig:
    """Return a configuration of few numbers."""
    made: SequenceConfig = usual(cls, *arguments, **{"hidden": HIDDEN, **options})
    return made

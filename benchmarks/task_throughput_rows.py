"""The rows of the comparison with TextBrewer, and the clock that all of them are measured with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

FIXED_LENGTH: Final = 128
"""Tokens to which TextBrewer's examples for GLUE pad everything (its MNLI and SST-2 examples)."""
TWO: Final = ("vanilla-kd", "pkd")
FOUR: Final = (*TWO, "universal-kd-il", "mhkd")
STEPS: Final = 10_000
"""Of the learning-rate schedule; fewer are made."""


@dataclass(frozen=True)
class Row:
    """One way to train.

    Attributes:
        title: what the table calls it.
        methods: of the students that are trained side by side.
        textbrewer: whether TextBrewer trains, or our engine.
        fixed: whether batches are padded to a fixed length, or to their longest.
        kept: whether what the teacher says is looked up.
    """

    title: str
    methods: tuple[str, ...]
    textbrewer: bool = False
    fixed: bool = False
    kept: bool = False


def rows_of(method: str) -> tuple[Row, ...]:
    """Rows of one method: TextBrewer's and ours."""
    name = "vanilla KD" if method == "vanilla-kd" else "hidden states"
    return (
        Row(
            f"{name}: TextBrewer, padded to {FIXED_LENGTH} as in its examples",
            (method,),
            textbrewer=True,
            fixed=True,
        ),
        Row(f"{name}: TextBrewer, padded as ours", (method,), textbrewer=True),
        Row(f"{name}: ours", (method,)),
        Row(f"{name}: ours, teacher outputs kept", (method,), kept=True),
    )


ROWS: Final = (
    *rows_of("vanilla-kd"),
    *rows_of("pkd"),
    Row("two methods share the teacher's pass", TWO),
    Row("four methods share the teacher's pass", FOUR),
    Row("four methods, teacher outputs kept", FOUR, kept=True),
)


@dataclass(frozen=True)
class Setting:
    """What a comparison is made with.

    Attributes:
        task: name of the task.
        batch_size: examples of a step.
        dtype: of the forward passes.
    """

    task: str
    batch_size: int
    dtype: str


@dataclass(frozen=True)
class Round:
    """What some steps took.

    Attributes:
        cpu: seconds of the processor.
        wall: seconds.
        teacher: of the processor's, those of the teacher's passes; 0 where that is not measured.
    """

    cpu: float
    wall: float
    teacher: float = 0.0


class Clock:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def read(self, teacher: float = 0.0) -> Round:
        """What has passed."""
        return Round(
            time.process_time() - self._began[0], time.perf_counter() - self._began[1], teacher
        )

"""Held-out losses of several students on one teacher pass, in eval mode and float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple

from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import Batch, TeacherPass
from kdnas.records import Losses

HELD_OUT_BATCH = 32


def held_out_losses(
    teacher: TeacherPass, trainers: Sequence[StudentTrainer], batches: Iterable[Batch]
) -> list[Losses]:
    """Read the losses of each student on the same held-out batches, in the students' order.

    Losses that are not finite set the trainer's ``error``: its last steps ruined the weights.
    """
    meters = [trainer.head.meter() for trainer in trainers]
    for batch in batches:
        states = teacher(batch, exact=True)
        for trainer, meter in zip(trainers, meters, strict=True):
            trainer.read(batch, states, meter)
    losses = [
        meter.losses(trainer.last_loss) for trainer, meter in zip(trainers, meters, strict=True)
    ]
    for trainer, found in zip(trainers, losses, strict=True):
        if not all(map(math.isfinite, astuple(found))):
            trainer.error = trainer.diverged(f"the held-out loss was {found.relative}")
    return losses

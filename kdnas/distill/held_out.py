"""Held-out losses of several students on one teacher pass, in eval mode and float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import Batch, TeacherPass
from kdnas.records import Losses

HELD_OUT_BATCH = 32


def held_out_losses(
    teacher: TeacherPass, trainers: Sequence[StudentTrainer], batches: Iterable[Batch]
) -> list[Losses]:
    """Read the losses of each student on the same held-out batches, in the students' order."""
    meters = [trainer.head.meter() for trainer in trainers]
    for batch in batches:
        states = teacher(batch, exact=True)
        for trainer, meter in zip(trainers, meters, strict=True):
            trainer.read(batch, states, meter)
    return [
        meter.losses(trainer.last_loss) for trainer, meter in zip(trainers, meters, strict=True)
    ]

"""Held-out losses: read in eval mode and float32 on sequences that are never trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kdnas.corpus.batches import eval_batches
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.setup import Setup
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.records import Losses
from kdnas.specs.parts import TrainingSpec

HELD_OUT_BATCH = 32
_HELD_OUT = 5  # tells this hiding of tokens from that of training


def held_out_losses(
    setup: Setup,
    teacher: TeacherPass,
    trainers: Sequence[StudentTrainer],
    corpus: TokenizedCorpus,
    spec: TrainingSpec,
) -> list[Losses]:
    """Read the losses of each student on the same held-out batches, in the students' order.

    Sequences and hidden tokens are drawn by the corpus and not by the training's seed: between
    two seeds the students differ, and not what they are asked.

    Losses that are not finite set the trainer's ``error``: its last steps ruined the weights.
    """
    meters = [trainer.head.meter() for trainer in trainers]
    for number, padded in enumerate(eval_batches(corpus, HELD_OUT_BATCH, spec.held_out)):
        batch = setup.batch(setup.hide(padded, trainers[0].plan, corpus.seed, _HELD_OUT, number))
        states = teacher(batch, exact=True)
        for trainer, meter in zip(trainers, meters, strict=True):
            trainer.read(batch, states, meter)
    losses = [
        meter.losses(trainer.training_loss) for trainer, meter in zip(trainers, meters, strict=True)
    ]
    for trainer, found in zip(trainers, losses, strict=True):
        read = (found.mean, found.relative, found.output)  # before a step there is no training loss
        if not all(map(math.isfinite, read)):
            trainer.error = trainer.diverged(f"the held-out loss was {found.relative}")
    return losses

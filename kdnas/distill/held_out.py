"""Held-out losses: read in eval mode and float32 on sequences that are never trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kdnas.corpus.batches import eval_batches
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.setup import Setup
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.batch import Batch
from kdnas.models.cost import KEPT_BYTES
from kdnas.models.taps import Activations
from kdnas.records import Losses
from kdnas.specs.parts import TrainingSpec

HELD_OUT_BATCH = 32
_HELD_OUT = 5  # tells this hiding of tokens from that of training


class HeldOut:
    """The held-out sequences, and what the teacher makes of them.

    That is the same at every reading, and running the teacher costs several times what reading a
    small student does: the activations are kept, of as many batches as fit.

    Sequences and hidden tokens are drawn by the corpus and not by the training's seed: between
    two seeds the students differ, and not what they are asked.

    Args:
        setup: the teacher, and where everything runs.
        corpus: whose held-out sequences are read.
        spec: how many of them.
        kept_bytes: memory for activations of the teacher.
    """

    def __init__(
        self,
        setup: Setup,
        corpus: TokenizedCorpus,
        spec: TrainingSpec,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._setup, self._corpus, self._count = setup, corpus, spec.held_out
        self._kept: dict[tuple[bool, int], Activations] = {}
        self._room = kept_bytes

    def losses(self, teacher: TeacherPass, trainers: Sequence[StudentTrainer]) -> list[Losses]:
        """Read the losses of each student on the same batches, in the students' order.

        Losses that are not finite set the trainer's ``error``: its last steps ruined the weights.
        """
        meters = [trainer.head.meter() for trainer in trainers]
        plan = trainers[0].plan
        for number, batch in enumerate(self._batches(plan)):
            states = self._states((plan.objective.masks_tokens, number), batch, teacher)
            for trainer, meter in zip(trainers, meters, strict=True):
                trainer.read(batch, states, meter)
        losses = [
            meter.losses(trainer.training_loss)
            for trainer, meter in zip(trainers, meters, strict=True)
        ]
        for trainer, found in zip(trainers, losses, strict=True):
            read = (found.mean, found.relative, found.output)  # no training loss before a step
            if not all(map(math.isfinite, read)):
                trainer.error = trainer.diverged(f"the held-out loss was {found.relative}")
        return losses

    def _batches(self, plan: StagePlan) -> Iterator[Batch]:
        for number, padded in enumerate(eval_batches(self._corpus, HELD_OUT_BATCH, self._count)):
            hidden = self._setup.hide(padded, plan, self._corpus.seed, _HELD_OUT, number)
            yield self._setup.batch(hidden)

    def _states(self, key: tuple[bool, int], batch: Batch, teacher: TeacherPass) -> Activations:
        """What the teacher makes of a batch: as kept, or by running it."""
        kept = self._kept.get(key)
        if kept is not None and kept.has(teacher.points):
            # A copy without what one reading adds to it.
            return Activations(batch, kept.hidden, kept.projections, kept.word_embeddings)
        found = teacher(batch, exact=True)
        if kept is not None:
            found.add(kept)
        more = found.num_bytes - (kept.num_bytes if kept is not None else 0)
        if more <= self._room:
            self._room -= more
            self._kept[key] = Activations(
                batch, found.hidden, found.projections, found.word_embeddings
            )
        return found

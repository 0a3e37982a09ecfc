"""What trainings share: the loaded teacher, and students that start from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from torch import nn

from kdnas.architecture import Architecture
from kdnas.corpus.batches import PaddedBatch
from kdnas.corpus.masking import TokenMasking
from kdnas.distill.numerics import Device, derived_seed
from kdnas.distill.parallel import ALONE, Parallel
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.attention import use_training_attention
from kdnas.models.batch import Batch, Totals
from kdnas.models.families import family_of
from kdnas.models.lm_head import MaskedLMHead, continue_lm_head, load_teacher_lm_head
from kdnas.models.student import EmbeddingBasis, build_student, load_weights, start_student
from kdnas.models.taps import TapPoints
from kdnas.models.teacher import TeacherHandle, load_teacher_model, mask_token
from kdnas.specs.parts import StudentSpec, TrainingSpec


class Setup:
    """A teacher in memory, and how its students start and are trained.

    Args:
        teacher: the teacher.
        device: where everything runs.
        dtype: format of training's forward passes.
        start: how students start.
        origin: the model whose weights students begin with, if there is one.
    """

    def __init__(
        self,
        teacher: TeacherHandle,
        device: Device,
        dtype: str,
        start: StudentSpec,
        origin: TeacherHandle | None = None,
    ) -> None:
        self.teacher, self.device, self.dtype = teacher, device, dtype
        self.family = family_of(teacher.shape.model_type)
        self.model = load_teacher_model(teacher).to(device)
        self._start, self._origin = start, origin

    @cached_property
    def _basis(self) -> EmbeddingBasis:
        return EmbeddingBasis.of(self.model, self.family)

    @cached_property
    def _lm_head(self) -> MaskedLMHead:
        return load_teacher_lm_head(self.teacher)

    @cached_property
    def masking(self) -> TokenMasking:
        """How tokens are hidden where an objective wants it."""
        mask_id, special_ids = mask_token(self.teacher)
        return TokenMasking(mask_id, special_ids, self.teacher.shape.vocab_size)

    def student(self, architecture: Architecture, plan: StagePlan, spec: TrainingSpec) -> nn.Module:
        """Build a student and give it its start."""
        student = build_student(
            self.teacher.config, architecture, seed=spec.seed, dropout=spec.dropout
        )
        use_training_attention(student)
        if self._origin is not None:
            load_weights(student, self._origin)
            return student
        init = "copy" if plan.objective.copies_layers else self._start.init
        basis = self._basis if init == "warm" else None
        start_student(student, self.family, init, basis, self.model)
        return student

    def trainer(
        self,
        student: nn.Module,
        architecture: Architecture,
        plan: StagePlan,
        spec: TrainingSpec,
        parallel: Parallel = ALONE,
        compile_student: bool = False,
    ) -> StudentTrainer:
        """Make the trainer of a student's stage."""
        objective, seed = plan.objective, spec.seed
        head = objective.head(
            architecture,
            self.teacher.shape,
            derived_seed("head", seed, architecture),
            self._lm_head if objective.needs_lm_head else None,
        )
        if head.student_lm_head is not None and self._origin is not None and not plan.first_step:
            continue_lm_head(head.student_lm_head, self._origin)
        return StudentTrainer(
            student,
            self.family,
            head,
            spec,
            plan,
            self.device,
            self.dtype,
            derived_seed("dropout", seed, architecture),
            parallel,
            compile_student,
        )

    def teacher_pass(self, trainers: Iterable[StudentTrainer]) -> TeacherPass:
        """Tap the teacher for all that these students learn from."""
        points = TapPoints.union(trainer.head.teacher_taps for trainer in trainers)
        return TeacherPass(self.model, self.family, points, self.device, self.dtype)

    def hide(self, padded: PaddedBatch, plan: StagePlan, *seed: int) -> PaddedBatch:
        """Hide tokens of a batch if the stage's objective wants it."""
        return self.masking(padded, *seed) if plan.objective.masks_tokens else padded

    def parts(
        self, padded: PaddedBatch, parallel: Parallel = ALONE, accumulate: int = 1
    ) -> list[Batch]:
        """Cut this worker's share of a step's batch into parts, and move them to the device.

        Workers take every n-th sequence: batches are sorted by length, so their shares are equally
        long. A worker whose share is empty (an epoch's last short batch) gets a sequence that does
        not count, since all workers have to exchange gradients.
        """
        totals = Totals.of(padded.attention_mask, padded.labels)
        share = padded.rows(slice(parallel.rank, None, parallel.world_size))
        counts = len(share.input_ids) > 0
        if not counts:
            share = padded.rows(slice(0, 1))
        size = -(-len(share.input_ids) // accumulate)
        return [
            self.batch(share.rows(slice(i, i + size)), totals, counts)
            for i in range(0, len(share.input_ids), size)
        ]

    def batch(
        self, padded: PaddedBatch, totals: Totals | None = None, counts: bool = True
    ) -> Batch:
        """Move a padded batch to the device."""
        return Batch.of(
            padded.input_ids,
            padded.attention_mask,
            padded.labels,
            device=self.device,
            totals=totals,
            counts=counts,
        )

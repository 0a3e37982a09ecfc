"""mini-KD: many students, one teacher pass (design of the hot path, performance §1).

The teacher runs once a batch; then every student of the group makes its own step on the same
hidden states. A student's batches, start and arithmetic depend on the context and on its own
architecture alone, so on a CPU its losses are the same to the bit in any group.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing

from kdnas.corpus.batches import BatchPlan, eval_batches, pad_batch
from kdnas.corpus.proxy_set import proxy_set
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HELD_OUT_BATCH, held_out_losses
from kdnas.distill.numerics import Device, derived_seed, keep_freed_memory
from kdnas.distill.schedule import total_steps
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import Batch, TeacherPass
from kdnas.models.families import family_of
from kdnas.models.student import EmbeddingBasis, build_student, start_student
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.objectives.registry import build_objective
from kdnas.records import Losses, MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.specs.parts import ObjectiveSpec, StudentSpec
from kdnas.specs.search import ProxySpec


class MiniKD:
    """Teacher, proxy set and held-out split in memory; trains any group of students on them.

    Args:
        context: what decides losses beside the architecture.
        teacher: the teacher that the context names.
        corpus: the tokenised corpus that the context names.
        device: where everything runs.
    """

    def __init__(
        self,
        context: MiniKDContext,
        teacher: TeacherHandle,
        corpus: TokenizedCorpus,
        device: Device,
    ) -> None:
        keep_freed_memory()
        self._context, self._handle, self._corpus = context, teacher, corpus
        self._device = device
        self._spec = ProxySpec.model_validate(context.proxy)
        self._init = StudentSpec.model_validate(context.student).init
        self._objective = build_objective(ObjectiveSpec.model_validate(context.objective))
        self._family = family_of(teacher.shape.model_type)
        self._teacher = load_teacher_model(teacher).to(device)
        self._basis = (
            EmbeddingBasis.of(self._teacher, self._family) if self._init == "warm" else None
        )
        indices = proxy_set(corpus, self._spec.fraction, self._spec.seed)
        self._plan = BatchPlan(corpus.lengths, indices, self._spec.batch_size, self._spec.seed)
        self.steps = total_steps(self._spec, self._plan.num_batches_per_epoch)

    def train(self, requests: Sequence[MiniKDRequest]) -> Generator[int | MiniKDResult, None, None]:
        """Train a group; yield the step number after each step, then every student's result.

        A student whose loss is not finite is given up where it stands, and the others go on.
        """
        started = time.monotonic()
        with ExitStack() as stack:
            trainers: dict[str, StudentTrainer] = {}
            for request in requests:
                trainer = self._trainer(request)
                trainers[request.candidate_id] = stack.enter_context(closing(trainer))
            layers = {j for t in trainers.values() for j in t.head.teacher_layers}
            teacher = stack.enter_context(
                TeacherPass(self._teacher, self._family, layers, self._device, self._context.dtype)
            )
            for step in range(self.steps):
                alive = [t for t in trainers.values() if t.error is None]
                if not alive:
                    break
                batch = Batch.of(
                    pad_batch(self._corpus, self._plan.batch_indices(step)), self._device
                )
                states = teacher(batch)
                for trainer in alive:
                    trainer.step(batch, states)
                yield step + 1
            losses = self._losses(teacher, trainers)
        seconds = (time.monotonic() - started) / len(requests)
        for request in requests:
            trainer = trainers[request.candidate_id]
            yield MiniKDResult(
                candidate_id=request.candidate_id,
                architecture=request.architecture,
                losses=losses.get(request.candidate_id),
                error=trainer.error,
                steps=trainer.step_number,
                train_seconds=seconds,
                curve=tuple(trainer.curve),
            )

    def _trainer(self, request: MiniKDRequest) -> StudentTrainer:
        architecture, shape = request.architecture, self._handle.shape
        seed = self._spec.seed
        student = build_student(
            self._handle.config, architecture, seed=seed, dropout=self._spec.dropout
        )
        start_student(student, self._family, self._init, self._basis)
        head = self._objective.head(
            architecture.layers,
            architecture.hidden,
            shape.layers,
            shape.hidden,
            derived_seed("head", seed, architecture),
        )
        return StudentTrainer(
            student,
            self._family,
            head,
            self._spec,
            self.steps,
            self._device,
            self._context.dtype,
            derived_seed("dropout", seed, architecture),
        )

    def _losses(
        self, teacher: TeacherPass, trainers: dict[str, StudentTrainer]
    ) -> dict[str, Losses]:
        alive = {name: t for name, t in trainers.items() if t.error is None}
        if not alive:
            return {}
        batches = (
            Batch.of(padded, self._device)
            for padded in eval_batches(
                self._corpus,
                self._corpus.held_out_indices,
                HELD_OUT_BATCH,
                self._spec.held_out,
                self._spec.seed,
            )
        )
        found = held_out_losses(teacher, list(alive.values()), batches)
        return {
            name: losses
            for (name, trainer), losses in zip(alive.items(), found, strict=True)
            if trainer.error is None
        }

"""mini-KD: many students, one teacher pass (design of the hot path, performance §1).

The teacher runs once a batch; then every student of the group makes its own step on the same
hidden states. A student's batches, start and arithmetic depend on the context and on its own
architecture alone, so on a CPU its losses are the same to the bit in any group.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing

from torch import nn

from kdnas.corpus.batches import BatchPlan, pad_batch
from kdnas.corpus.proxy_set import proxy_set
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import held_out_losses
from kdnas.distill.numerics import Device, keep_freed_memory
from kdnas.distill.schedule import total_steps
from kdnas.distill.setup import Setup
from kdnas.distill.stages import plan_stages
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import build_stages
from kdnas.records import CurvePoint, Losses, MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.specs.objectives import objective_spec
from kdnas.specs.parts import StudentSpec
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
        self._corpus = corpus
        self._spec = ProxySpec.model_validate(context.proxy)
        start = StudentSpec.model_validate(context.student)
        self._setup = Setup(teacher, device, context.dtype, start)
        indices = proxy_set(corpus, self._spec.fraction, self._spec.seed)
        self._batches = BatchPlan(corpus.lengths, indices, self._spec.batch_size, self._spec.seed)
        self.steps = total_steps(self._spec, self._batches.num_batches_per_epoch)
        stages = build_stages(objective_spec(context.objective))
        self._stages = plan_stages(stages, self.steps)

    def train(self, requests: Sequence[MiniKDRequest]) -> Generator[int | MiniKDResult, None, None]:
        """Train a group; yield the step number after each step, then every student's result.

        A student whose loss is not finite is given up where it stands, and the others go on.
        """
        started = time.monotonic()
        setup, first = self._setup, self._stages[0]
        group = [
            _Pupil(request, setup.student(request.architecture, first, self._spec))
            for request in requests
        ]
        for plan in self._stages:
            alive = [pupil for pupil in group if pupil.error is None]
            if not alive:
                break
            with ExitStack() as stack:
                for pupil in alive:
                    architecture = pupil.request.architecture
                    pupil.trainer = setup.trainer(pupil.student, architecture, plan, self._spec)
                    stack.enter_context(closing(pupil.trainer))
                teacher = stack.enter_context(setup.teacher_pass(p.trainer for p in alive))
                for step in range(plan.first_step, plan.end):
                    training = [p.trainer for p in alive if p.trainer.error is None]
                    if not training:
                        break
                    padded = pad_batch(self._corpus, self._batches.batch_indices(step))
                    batch = setup.batch(setup.hide(padded, plan, self._spec.seed, step))
                    states = teacher(batch)
                    for trainer in training:
                        trainer.step(batch, states)
                    yield step + 1
                finished = [p for p in alive if p.trainer.error is None]
                if plan is self._stages[-1] and finished:
                    trainers = [p.trainer for p in finished]
                    found = held_out_losses(setup, teacher, trainers, self._corpus, self._spec)
                    for pupil, losses in zip(finished, found, strict=True):
                        pupil.losses = losses
                for pupil in alive:
                    pupil.curve += pupil.trainer.curve
                    pupil.error = pupil.trainer.error
        seconds = (time.monotonic() - started) / len(requests)
        for pupil in group:
            yield pupil.result(seconds)


class _Pupil:
    """A student of the group on its way through the stages."""

    trainer: StudentTrainer

    def __init__(self, request: MiniKDRequest, student: nn.Module) -> None:
        self.request, self.student = request, student
        self.curve: list[CurvePoint] = []
        self.losses: Losses | None = None
        self.error: str | None = None

    def result(self, seconds: float) -> MiniKDResult:
        """What is told of it in the end."""
        return MiniKDResult(
            candidate_id=self.request.candidate_id,
            architecture=self.request.architecture,
            losses=self.losses if self.error is None else None,
            error=self.error,
            steps=self.trainer.step_number,
            train_seconds=seconds,
            curve=tuple(self.curve),
        )

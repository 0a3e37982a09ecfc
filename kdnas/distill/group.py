"""mini-KD: many students, one teacher pass (design of the hot path, performance §1).

The teacher runs once a batch; then every student of the group makes its own step on the same
hidden states. A student's batches, start and arithmetic depend on the context and on its own
architecture alone, so on a CPU its losses are the same to the bit in any group.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing

from torch import nn

from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, pad_batch
from kdnas.corpus.proxy_set import proxy_set
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HeldOut
from kdnas.distill.numerics import Device, keep_freed_memory
from kdnas.distill.schedule import total_steps
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan, plan_stages
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.errors import TrainingError
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import build_stages
from kdnas.records import CurvePoint, Losses, MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import StudentSpec
from kdnas.specs.search import ProxySpec
from kdnas.store import Store


class MiniKD:
    """Teacher, proxy set and held-out split in memory; trains any group of students on them.

    Args:
        context: what decides losses beside the architecture.
        teacher: the teacher that the context names.
        corpus: the tokenised corpus that the context names.
        store: keeps the teacher's states that students start from.
        device: where everything runs.
    """

    def __init__(
        self,
        context: MiniKDContext,
        teacher: TeacherHandle,
        corpus: TokenizedCorpus,
        store: Store,
        device: Device,
    ) -> None:
        keep_freed_memory()
        self._corpus = corpus
        self._spec = ProxySpec.model_validate(context.proxy)
        self._start = StudentSpec.model_validate(context.student)
        self._setup = Setup(
            teacher, CalibrationText(corpus, store), device, context.dtype, self._start
        )
        indices = proxy_set(corpus, self._spec.fraction, self._spec.seed)
        self._batches = BatchPlan(corpus.lengths, indices, self._spec.batch_size, self._spec.seed)
        self.steps = total_steps(self._spec, self._batches.num_batches_per_epoch)
        stages = build_stages(objective_spec(context.objective))
        self._stages = plan_stages(stages, self.steps)
        self._held_out = HeldOut(self._setup, corpus, self._spec)

    def prepare(self) -> None:
        """Collect what all students start from, unless it is in the store already.

        Where there is too little text for that the teacher is looked at all the same.
        """
        if self._start.init == "teacher" or self._setup.has_enough_text:
            _ = self._setup.states
        else:
            self._setup.look_at_teacher()

    def read(self, architectures: Sequence[Architecture]) -> Iterator[tuple[Architecture, Losses]]:
        """Read the held-out losses of students as they start, without training any.

        They are of the first stage's objective. A student is built, read and forgotten before the
        next one, so any number of them needs the memory of one.
        """
        plan = self._stages[0]
        for architecture in architectures:
            member = _Member(MiniKDRequest("", architecture))
            with (
                closing(self._begin(member, plan)) as trainer,
                self._setup.teacher_pass([trainer]) as teacher,
            ):
                losses = self._held_out.losses(teacher, [trainer])[0]
                if trainer.error is not None:
                    raise TrainingError(f"{architecture} cannot be read: {trainer.error}")
                yield architecture, losses

    def train(self, requests: Sequence[MiniKDRequest]) -> Generator[int | MiniKDResult, None, None]:
        """Train a group; yield the step number after each step, then every student's result.

        A student whose loss is not finite is given up where it stands, and the others go on.
        """
        started = time.monotonic()
        setup = self._setup
        group = [_Member(request) for request in requests]
        for plan in self._stages:
            alive = [member for member in group if member.error is None]
            if not alive:
                break
            with ExitStack() as stack:
                for member in alive:
                    stack.enter_context(closing(self._begin(member, plan)))
                teacher = stack.enter_context(setup.teacher_pass(p.trainer for p in alive))
                if plan is self._stages[0]:
                    for member, losses in self._read(teacher, alive):
                        member.loss_start = losses.relative
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
                    for member, losses in self._read(teacher, finished):
                        member.losses = losses
                for member in alive:
                    member.curve += member.trainer.curve
                    member.error = member.trainer.error
        seconds = (time.monotonic() - started) / len(requests)
        for member in group:
            yield member.result(seconds)

    def _begin(self, member: _Member, plan: StagePlan) -> StudentTrainer:
        """Make the trainer of a member's stage, before the first one its student as well.

        One after the other, since from its start to its fit a student holds what it makes of the
        calibration text.
        """
        architecture = member.request.architecture
        if plan is self._stages[0]:
            member.student = self._setup.student(architecture, plan, self._spec)
        member.trainer = self._setup.trainer(member.student, architecture, plan, self._spec)
        self._setup.fit(member.trainer)
        return member.trainer

    def _read(
        self, teacher: TeacherPass, group: Sequence[_Member]
    ) -> Iterator[tuple[_Member, Losses]]:
        losses = self._held_out.losses(teacher, [member.trainer for member in group])
        return zip(group, losses, strict=True)


class _Member:
    """A student of the group on its way through the stages."""

    student: nn.Module
    trainer: StudentTrainer

    def __init__(self, request: MiniKDRequest) -> None:
        self.request = request
        self.curve: list[CurvePoint] = []
        self.loss_start: float | None = None
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
            loss_start=self.loss_start,
        )

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

from kdnas.allocator import keep_freed_memory
from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, pad_batch
from kdnas.corpus.proxy_set import proxy_set
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HeldOut
from kdnas.distill.numerics import Device
from kdnas.distill.schedule import total_steps
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan, plan_stages
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.errors import TrainingError
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import build_stages
from kdnas.records import CurvePoint, Losses, MiniKDContext, MiniKDRequest, MiniKDResult, Reading
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
        for architecture in architectures:
            (result,) = self.train([MiniKDRequest("", architecture, last_step=0)])
            assert isinstance(result, MiniKDResult)  # no step is made
            if result.losses is None:
                raise TrainingError(f"{architecture} cannot be read: {result.error}")
            yield architecture, result.losses

    def train(self, requests: Sequence[MiniKDRequest]) -> Generator[int | MiniKDResult, None, None]:
        """Train a group; yield the step number after each step, then every student's result.

        A student whose loss is not finite is given up where it stands, and so is one whose loss at
        a rung is too high; the others go on. When nobody is left the teacher rests.
        """
        started = time.monotonic()
        setup = self._setup
        group = [_Member(request, self.steps) for request in requests]
        for plan in self._stages:
            is_first = plan is self._stages[0]
            alive = [p for p in group if is_first or p.goes_on(plan.first_step)]
            if not alive:
                break
            with ExitStack() as stack:
                for member in alive:
                    stack.enter_context(closing(member))
                    self._begin(member, plan)
                teacher = stack.enter_context(setup.teacher_pass(p.trainer for p in alive))
                if is_first:
                    self._read(teacher, alive, 0)
                for step in range(plan.first_step, plan.end):
                    training = [p for p in alive if p.is_training(step)]
                    if not training:
                        break
                    padded = pad_batch(self._corpus, self._batches.batch_indices(step))
                    batch = setup.batch(setup.hide(padded, plan, self._spec.seed, step))
                    states = teacher(batch)
                    for member in training:
                        member.trainer.step(batch, states)
                    yield step + 1
                    self._read(teacher, training, step + 1)
        seconds = time.monotonic() - started
        weights = [1 + member.steps for member in group]  # none may have made a step
        for member, weight in zip(group, weights, strict=True):
            yield member.result(seconds * weight / sum(weights))

    def _begin(self, member: _Member, plan: StagePlan) -> None:
        """Make the trainer of a member's stage, before the first one its student as well.

        One after the other, since from its start to its fit a student holds what it makes of the
        calibration text.
        """
        architecture = member.request.architecture
        if plan is self._stages[0]:
            member.student = self._setup.student(architecture, plan, self._spec)
        trainer = self._setup.trainer(member.student, architecture, plan, self._spec)
        member.trainer = trainer
        self._setup.fit(trainer)

    def _read(self, teacher: TeacherPass, group: Sequence[_Member], step: int) -> None:
        """Read the losses of those who are to be read after this step."""
        due = [p for p in group if p.trainer.error is None and p.is_read(step)]
        if not due:
            return
        losses = self._held_out.losses(teacher, [member.trainer for member in due])
        for member, found in zip(due, losses, strict=True):
            if member.trainer.error is None:
                member.take(Reading(step, found))


class _Member:
    """A student of the group on its way through the stages.

    Attributes:
        end: the last step that it makes.
        steps: steps made, in the stages that are over.
        stopped: whether it ended at a rung.
    """

    student: nn.Module

    def __init__(self, request: MiniKDRequest, steps: int) -> None:
        self.request = request
        self.end = steps if request.last_step is None else min(request.last_step, steps)
        self.steps = 0
        self.stopped = False
        self.curve: list[CurvePoint] = []
        self.readings: list[Reading] = []
        self.error: str | None = None
        self._trainer: StudentTrainer | None = None

    @property
    def trainer(self) -> StudentTrainer:
        """Of the stage at work."""
        assert self._trainer is not None  # it was not stopped, and the stage is not over
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: StudentTrainer) -> None:
        self._trainer = trainer

    def goes_on(self, step: int) -> bool:
        """Whether it makes this step, the first of a stage."""
        return self.error is None and not self.stopped and step < self.end

    def is_training(self, step: int) -> bool:
        """Whether it makes this step."""
        return not self.stopped and self.trainer.error is None and step < self.end

    def is_read(self, step: int) -> bool:
        """Whether its losses are read after this step."""
        rungs = (rung.step for rung in self.request.rungs)
        return step in {0, self.end, *self.request.read_after, *rungs}

    def take(self, reading: Reading) -> None:
        """Keep a reading, and end here if it is that of a rung and not good enough."""
        self.readings.append(reading)
        if reading.step < self.end and any(r.stops(reading) for r in self.request.rungs):
            self.stopped = True
            self.close()
            del self.student

    def close(self) -> None:
        """End the stage: keep what its trainer has to say, and free the memory that it takes."""
        if self._trainer is None:
            return
        self._trainer.close()
        self.curve += self._trainer.curve
        self.error, self.steps = self._trainer.error, self._trainer.step_number
        self._trainer = None

    def result(self, seconds: float) -> MiniKDResult:
        """What is told of it in the end."""
        first, last = (self.readings[0], self.readings[-1]) if self.readings else (None, None)
        is_whole = last is not None and self.error is None and not self.stopped
        return MiniKDResult(
            candidate_id=self.request.candidate_id,
            architecture=self.request.architecture,
            losses=last.losses if last is not None and is_whole else None,
            error=self.error,
            steps=self.steps,
            train_seconds=seconds,
            curve=tuple(self.curve),
            loss_start=first.losses.relative if first is not None else None,
            readings=tuple(self.readings),
        )

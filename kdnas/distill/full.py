"""Full distillation of one architecture: to the last step, resumable to the step.

The same students, heads, teacher pass and batches as mini-KD (``group.py``), with the whole
training split, checkpoints, and the best held-out loss kept. Several workers may share each
batch; they take the same steps, and the first of them reads held-out losses and writes checkpoints.
Of no steps at all comes the student as it starts, undistilled, with its losses.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from kdnas.allocator import keep_freed_memory
from kdnas.corpus.batches import BatchPlan, PaddedBatch, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.held_out import HeldOut
from kdnas.distill.numerics import Device, check_compiler, num_threads
from kdnas.distill.parallel import ALONE, Parallel
from kdnas.distill.schedule import total_steps
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan, plan_stages
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.errors import StoreError, TrainingError
from kdnas.models.families import family_of
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.student import build_student
from kdnas.models.teacher import TeacherHandle
from kdnas.objectives.registry import build_stages
from kdnas.records import CurvePoint, Losses
from kdnas.specs.distillation import DistillationSpec
from kdnas.store import Store

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """Held-out losses at a step."""

    step: int
    losses: Losses


@dataclass(frozen=True, slots=True)
class FullProgress:
    """Where a distillation is.

    Attributes:
        step: steps made.
        total_steps: of the whole run.
        loss: recent training loss.
        tokens_per_second: real tokens, of all workers.
        objective: of the present stage.
        points: points of the curve since the last report.
        held_out: the held-out losses, if they were just read.
    """

    step: int
    total_steps: int
    loss: float
    tokens_per_second: float
    objective: str
    points: tuple[CurvePoint, ...] = ()
    held_out: HeldOutPoint | None = None


@dataclass(frozen=True)
class Distilled:
    """Where a distillation stands, or its end: the best student and how it got there.

    Attributes:
        student: the student of the best held-out loss in the last stage.
        lm_head: its masked-LM head, where one was trained.
        best: where and how good.
        held_out: all readings.
        curve: of the training loss.
        steps: steps made.
        total_steps: of the whole run.
        projection: (d, D) map of its last layer to the teacher's, through which sentence
            embeddings are read; None before the end, and where the teacher embeds no sentences.
    """

    student: torch.nn.Module
    lm_head: MaskedLMHead | None
    best: HeldOutPoint
    held_out: tuple[HeldOutPoint, ...]
    curve: tuple[CurvePoint, ...]
    steps: int
    total_steps: int
    projection: torch.Tensor | None = None

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.steps >= self.total_steps

    @property
    def undistilled(self) -> bool:
        """Whether it is the student as it starts, of a run without steps."""
        return self.total_steps == 0


class FullDistillation:
    """One worker's part in a full distillation, and the checkpoints from which it goes on.

    Args:
        spec: what to distil and how, with ``threads`` written out.
        teacher: the teacher.
        corpus: the tokenised corpus.
        store: keeps the teacher's states that the student starts from.
        checkpoints: where the run keeps its checkpoints.
        device: where it runs.
        dtype: format of training's forward passes.
        origin: the student whose weights it begins with, if there is one.
        parallel: this worker's place among the run's workers.

    Raises:
        SpecError: the student is to be compiled, and there is no compiler.
    """

    def __init__(
        self,
        spec: DistillationSpec,
        teacher: TeacherHandle,
        corpus: TokenizedCorpus,
        store: Store,
        checkpoints: Checkpoints,
        device: Device,
        dtype: str,
        origin: TeacherHandle | None = None,
        parallel: Parallel = ALONE,
    ) -> None:
        if spec.training.compile:
            check_compiler()
        keep_freed_memory()
        self._spec, self._training = spec, spec.training
        self._corpus, self._checkpoints, self._parallel = corpus, checkpoints, parallel
        self._batches = BatchPlan(
            corpus.lengths, corpus.train_indices, self._training.batch_size, self._training.seed
        )
        self.steps = total_steps(self._training, self._batches.num_batches_per_epoch)
        self._stages = plan_stages(build_stages(spec.objective), self.steps)
        self._every = spec.training.checkpoint_every or min(200, max(1, self.steps // 10))
        self._setup = Setup(
            teacher, CalibrationText(corpus, store), device, dtype, spec.student, origin
        )
        self._reader = HeldOut(self._setup, corpus, self._training)
        self._curve: list[CurvePoint] = []
        self._held_out: list[HeldOutPoint] = []
        self._best: dict[str, Any] | None = None
        self._step, self._told = 0, 0

    def run(
        self,
        on_progress: Callable[[FullProgress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """Train from the newest checkpoint, or from the start, to the end or until told to stop.

        Stopping writes a checkpoint first. Going on from it gives the weights of an undisturbed
        run, on a CPU to the bit. No worker returns before that checkpoint is there for all.

        Returns:
            Steps made so far.

        Raises:
            TrainingError: the loss stopped being finite.
            StoreError: a checkpoint cannot be written or read.
        """
        threads = self._training.threads or torch.get_num_threads()
        state = self._newest()
        with num_threads(threads):
            student = self._setup.student(
                self._spec.arch, self._stages[0], self._training, started=state is None
            )
            for plan in self._stages:
                if state is not None and plan.end <= self._step:
                    continue
                with ExitStack() as stack:
                    trainer = self._setup.trainer(
                        student,
                        self._spec.arch,
                        plan,
                        self._training,
                        self._parallel,
                        self._training.compile and plan.steps > 0,
                    )
                    stack.enter_context(closing(trainer))
                    if state is not None and self._step > plan.first_step:
                        trainer.load_state_dict(state["trainer"])
                    else:
                        if state is not None:  # the checkpoint is the end of the stage before
                            trainer.student.load_state_dict(state["trainer"]["student"])
                        self._setup.fit(trainer)
                    state = None
                    self._parallel.lead(trainer.weights())
                    teacher = stack.enter_context(self._setup.teacher_pass([trainer]))
                    if not self._stage(plan, trainer, teacher, on_progress, should_stop):
                        break
        self._parallel.wait()  # the first may still be writing what the others read next
        return self._step

    def _stage(
        self,
        plan: StagePlan,
        trainer: StudentTrainer,
        teacher: TeacherPass,
        on_progress: Callable[[FullProgress], None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Train through a stage; False if it was stopped before its end."""
        if self._step == 0:
            self._read_start(plan, trainer, teacher, on_progress)
        shown, tokens, since = -math.inf, 0, time.monotonic()
        while not trainer.finished:
            tokens += self._train_step(plan, trainer, teacher)
            if trainer.error:
                raise TrainingError(trainer.error)
            self._step = trainer.step_number
            self._curve += trainer.curve
            trainer.curve.clear()
            stopping = self._parallel.any(should_stop())
            due = self._step % self._every == 0 or trainer.finished
            leads, point = self._parallel.leads, None
            if due and leads:
                point = self._read_held_out(plan, trainer, teacher)
            if due or stopping:
                self._save(trainer)
            now = time.monotonic()
            if leads and (point or now - shown >= PROGRESS_SECONDS):
                shown = now
                on_progress(self._progress(plan, trainer, tokens / max(now - since, 1e-9), point))
            if stopping and self._step < self.steps:
                return False
        return True

    def _read_start(
        self,
        plan: StagePlan,
        trainer: StudentTrainer,
        teacher: TeacherPass,
        on_progress: Callable[[FullProgress], None],
    ) -> None:
        """Read the losses of a student as it starts, the training loss on the first batch.

        A good start may be better than what a training makes of it, so it may be the best student.
        """
        parts = self._setup.parts(self._batch(plan, 0), self._parallel, self._training.accumulate)
        loss = sum(trainer.look(batch, teacher(batch)) for batch in parts)
        trainer.last_loss = sum(self._parallel.gather(loss))
        point = None
        if self._parallel.leads:
            point = self._read_held_out(plan, trainer, teacher)
        if not plan.steps:
            self._save(trainer)
        if point is not None:
            on_progress(self._progress(plan, trainer, 0.0, point))

    def _batch(self, plan: StagePlan, step: int) -> PaddedBatch:
        """Take the whole batch of a step."""
        padded = pad_batch(self._corpus, self._batches.batch_indices(step))
        return self._setup.hide(padded, plan, self._training.seed, step)

    def _train_step(self, plan: StagePlan, trainer: StudentTrainer, teacher: TeacherPass) -> int:
        """Make one step; return the real tokens of its whole batch."""
        padded = self._batch(plan, trainer.step_number)
        parts = self._setup.parts(padded, self._parallel, self._training.accumulate)
        for number, batch in enumerate(parts):
            trainer.learn(batch, teacher(batch), number)
        trainer.update(torch.from_numpy(np.unique(padded.input_ids)))
        return parts[0].totals.tokens

    def _progress(
        self, plan: StagePlan, trainer: StudentTrainer, speed: float, point: HeldOutPoint | None
    ) -> FullProgress:
        points = tuple(self._curve[self._told :])
        self._told = len(self._curve)
        loss = trainer.recent_loss
        return FullProgress(self._step, self.steps, loss, speed, plan.objective.name, points, point)

    def _read_held_out(
        self, plan: StagePlan, trainer: StudentTrainer, teacher: TeacherPass
    ) -> HeldOutPoint:
        found = self._reader.losses(teacher, [trainer])
        if trainer.error:
            raise TrainingError(trainer.error)
        point = HeldOutPoint(self._step, found[0])
        self._held_out.append(point)
        if best_reading(self._held_out, self._stages) == point:
            lm_head = trainer.head.student_lm_head
            self._best = {
                "student": _copy(trainer.student),
                "lm_head": None if lm_head is None else _copy(lm_head),
            }
        if self._step == self.steps:  # it costs more than a reading, and nobody wants it before
            self._fit_projection(trainer)
        return point

    def _fit_projection(self, trainer: StudentTrainer) -> None:
        """Fit the map of the best student, for which it takes the newest one's place."""
        assert self._best is not None  # a reading came before
        newest = _copy(trainer.student)
        trainer.student.load_state_dict(self._best["student"])
        self._best["projection"] = self._setup.sentence_projection(trainer)
        trainer.student.load_state_dict(newest)

    def _save(self, trainer: StudentTrainer) -> None:
        """Write a checkpoint: all workers tell their part, the first one writes."""
        state: dict[str, Any] = {
            "trainer": trainer.state_dict(),
            "step": self._step,
            "total_steps": self.steps,
            "best": self._best,
            "curve": [(p.step, p.loss, p.learning_rate) for p in self._curve],
            "held_out": json.dumps([asdict(point) for point in self._held_out]),
        }
        if self._parallel.leads:
            self._checkpoints.save(state, self._step)

    def _newest(self) -> dict[str, Any] | None:
        """Load the newest checkpoint and take over what it tells of the run so far.

        Raises:
            StoreError: it cannot be read, or the workers do not see the same one.
        """
        state = self._checkpoints.load()
        steps = self._parallel.gather(0 if state is None else int(state["step"]))
        if len(set(steps)) > 1:
            seen = ", ".join(f"{step:.0f}" for step in steps)
            raise StoreError(
                f"the workers see checkpoints of different steps ({seen}) under "
                f"{self._checkpoints.url}; give training.checkpoints a place that all nodes reach"
            )
        self._told = 0
        if state is not None:
            self._step, self._best = int(state["step"]), state["best"]
            self._curve = [CurvePoint(*point) for point in state["curve"]]
            self._held_out = list(_readings(state))
        return state


def load_distilled(
    spec: DistillationSpec, teacher: TeacherHandle, checkpoints: Checkpoints
) -> Distilled | None:
    """Read how far a run is, and its best student, from its newest checkpoint.

    Returns:
        None if there is no checkpoint yet. Before the first held-out reading the student is the
        newest one.
    """
    state = checkpoints.load()
    if state is None:
        return None
    student = build_student(teacher.config, spec.arch, seed=spec.training.seed)
    best_state = state["best"] or {"student": state["trainer"]["student"], "lm_head": None}
    student.load_state_dict(best_state["student"])
    for key in family_of(teacher.shape.model_type).dropout_keys:
        # Who fine-tunes the student wants the family's dropout, not that of the distillation.
        setattr(student.config, key, getattr(teacher.config, key))
    lm_head = None
    if best_state["lm_head"] is not None:
        config: Any = student.config
        lm_head = MaskedLMHead.of_config(config)
        lm_head.load_state_dict(best_state["lm_head"])
    curve = tuple(CurvePoint(*point) for point in state["curve"])
    held_out, step, total = _readings(state), int(state["step"]), int(state["total_steps"])
    best = best_reading(held_out, plan_stages(build_stages(spec.objective), total))
    if best is None:
        unread = Losses(curve[-1].loss if curve else math.nan, math.nan, math.nan, math.nan)
        best = HeldOutPoint(step, unread)
    projection = best_state.get("projection")  # of a run that came to its end
    return Distilled(student.eval(), lm_head, best, held_out, curve, step, total, projection)


def best_reading(
    held_out: tuple[HeldOutPoint, ...] | list[HeldOutPoint], stages: tuple[StagePlan, ...]
) -> HeldOutPoint | None:
    """Return the reading of the smallest relative loss in the last stage that was reached.

    Losses of different objectives cannot be compared. What is read at a stage's first step is the
    end of the stage before; only step 0 is the start of its own.
    """
    if not held_out:
        return None
    first = max((s.first_step for s in stages if s.first_step < held_out[-1].step), default=0)
    own = (p for p in held_out if p.step > first or first == 0)
    return min(own, key=lambda p: (p.losses.relative, p.step))


def _readings(state: dict[str, Any]) -> tuple[HeldOutPoint, ...]:
    return tuple(
        HeldOutPoint(int(p["step"]), Losses(**p["losses"])) for p in json.loads(state["held_out"])
    )


def _copy(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}

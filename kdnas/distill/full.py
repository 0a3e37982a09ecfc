"""Full distillation of one architecture: to the last step, resumable to the step.

The same student, head, teacher pass and batches as mini-KD (``group.py``), with the whole
training split, checkpoints, and the best held-out loss kept.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from kdnas.corpus.batches import BatchPlan, eval_batches, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.checkpoint import load_checkpoint, save_checkpoint
from kdnas.distill.held_out import HELD_OUT_BATCH, held_out_losses
from kdnas.distill.numerics import Device, derived_seed, keep_freed_memory, num_threads
from kdnas.distill.schedule import total_steps
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import Batch, TeacherPass
from kdnas.errors import StoreError, TrainingError
from kdnas.models.families import family_of
from kdnas.models.student import EmbeddingBasis, build_student, start_student
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.objectives.registry import build_objective
from kdnas.records import CurvePoint, Losses
from kdnas.specs.distillation import DistillationSpec

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """Held-out losses at a step."""

    step: int
    losses: Losses


@dataclass(frozen=True, slots=True)
class FullProgress:
    """Where a distillation is; ``held_out`` is set when it was just read."""

    step: int
    total_steps: int
    loss: float
    tokens_per_second: float
    held_out: HeldOutPoint | None = None


@dataclass(frozen=True)
class Distilled:
    """The end of a distillation: the best student and how it got there."""

    student: torch.nn.Module
    best: HeldOutPoint
    held_out: tuple[HeldOutPoint, ...]
    curve: tuple[CurvePoint, ...]
    steps: int
    finished: bool


class FullDistillation:
    """One full distillation and the folder in which it can be resumed.

    Args:
        spec: what to distil and how, with ``threads`` written out.
        teacher: the teacher.
        corpus: the tokenised corpus.
        folder: where checkpoints and the best weights are kept.
        device: where it runs.
        dtype: format of training's forward passes.
    """

    def __init__(
        self,
        spec: DistillationSpec,
        teacher: TeacherHandle,
        corpus: TokenizedCorpus,
        folder: Path,
        device: Device,
        dtype: str,
    ) -> None:
        keep_freed_memory()
        self._spec, self._training = spec, spec.training
        self._corpus, self._folder, self._device = corpus, folder, device
        architecture, shape, seed = spec.arch, teacher.shape, spec.training.seed
        family = family_of(shape.model_type)
        plan_of = BatchPlan(corpus.lengths, corpus.train_indices, self._training.batch_size, seed)
        self._plan = plan_of
        self.steps = total_steps(self._training, plan_of.num_batches_per_epoch)
        objective = build_objective(spec.objective)
        head = objective.head(
            architecture.layers,
            architecture.hidden,
            shape.layers,
            shape.hidden,
            derived_seed("head", seed, architecture),
        )
        teacher_model = load_teacher_model(teacher)
        student = build_student(
            teacher.config, architecture, seed=seed, dropout=self._training.dropout
        )
        basis = EmbeddingBasis.of(teacher_model, family) if spec.student.init == "warm" else None
        start_student(student, family, spec.student.init, basis)
        self._teacher = TeacherPass(
            teacher_model.to(device), family, head.teacher_layers, device, dtype
        )
        self._trainer = StudentTrainer(
            student,
            family,
            head,
            self._training,
            self.steps,
            device,
            dtype,
            derived_seed("dropout", seed, architecture),
        )
        self._held_out: list[HeldOutPoint] = []
        self._told = 0

    def run(
        self,
        on_progress: Callable[[FullProgress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Distilled:
        """Train from the newest checkpoint, or from the start, to the end or until told to stop.

        Stopping writes a checkpoint first. Going on from it gives the weights of an undisturbed
        run, on a CPU to the bit.

        Raises:
            TrainingError: the loss stopped being finite.
            StoreError: a checkpoint cannot be written or read.
        """
        trainer = self._trainer
        threads = self._training.threads or torch.get_num_threads()
        with closing(trainer), self._teacher, num_threads(threads):
            self._resume()
            shown, tokens, since = -math.inf, 0, time.monotonic()
            while not trainer.finished:
                indices = self._plan.batch_indices(trainer.step_number)
                batch = Batch.of(pad_batch(self._corpus, indices), self._device)
                trainer.step(batch, self._teacher(batch))
                if trainer.error:
                    raise TrainingError(trainer.error)
                tokens += batch.num_tokens
                stopping = should_stop()
                due = trainer.step_number % self._training.checkpoint_every == 0
                point = self._read_held_out() if due or trainer.finished else None
                if due or trainer.finished or stopping:
                    self._save()
                now = time.monotonic()
                if point or now - shown >= PROGRESS_SECONDS:
                    shown = now
                    rate = tokens / max(now - since, 1e-9)
                    on_progress(
                        FullProgress(
                            trainer.step_number, self.steps, trainer.recent_loss, rate, point
                        )
                    )
                if stopping:
                    break
            return self._result()

    @property
    def step_number(self) -> int:
        """Steps made so far."""
        return self._trainer.step_number

    def new_points(self) -> tuple[CurvePoint, ...]:
        """Points of the curve since the last call; all of them at first."""
        points = tuple(self._trainer.curve[self._told :])
        self._told = len(self._trainer.curve)
        return points

    def _resume(self) -> None:
        state = load_checkpoint(self._folder / "checkpoints")
        if state is None:
            return
        self._trainer.load_state_dict(state["trainer"])
        self._held_out = [
            HeldOutPoint(int(p["step"]), Losses(**p["losses"]))
            for p in json.loads(state["held_out"])
        ]

    def _save(self) -> None:
        state: dict[str, Any] = {
            "trainer": self._trainer.state_dict(),
            "held_out": json.dumps([asdict(point) for point in self._held_out]),
        }
        save_checkpoint(self._folder / "checkpoints", state, self._trainer.step_number)
        best = self._best()
        for old in self._folder.glob("best-*.safetensors"):
            if best is None or old != self._best_file(best.step):
                old.unlink()

    def _read_held_out(self) -> HeldOutPoint:
        batches = (
            Batch.of(padded, self._device)
            for padded in eval_batches(
                self._corpus,
                self._corpus.held_out_indices,
                HELD_OUT_BATCH,
                self._training.held_out,
                self._training.seed,
            )
        )
        losses = held_out_losses(self._teacher, [self._trainer], batches)[0]
        if self._trainer.error:
            raise TrainingError(self._trainer.error)
        point = HeldOutPoint(self._trainer.step_number, losses)
        self._held_out.append(point)
        if self._best() == point:
            self._write_best(point.step)
        return point

    def _write_best(self, step: int) -> None:
        target = self._best_file(step)
        draft = target.with_suffix(".draft")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_file(
                {k: v.contiguous().cpu() for k, v in self._trainer.student.state_dict().items()},
                draft,
            )
            draft.rename(target)
        except (OSError, SafetensorError) as error:
            draft.unlink(missing_ok=True)
            raise StoreError(
                f"the best weights could not be written to {self._folder} "
                f"({' '.join(str(error).split())[:120]}); free space there and resume"
            ) from error

    def _best(self) -> HeldOutPoint | None:
        return min(self._held_out, key=lambda p: (p.losses.relative, p.step), default=None)

    def _best_file(self, step: int) -> Path:
        return self._folder / f"best-{step:09d}.safetensors"

    def _result(self) -> Distilled:
        trainer, best = self._trainer, self._best()
        if best is None:  # stopped before the first reading
            losses = Losses(trainer.last_loss, math.nan, math.nan, math.nan)
            best = HeldOutPoint(trainer.step_number, losses)
        elif trainer.finished:
            trainer.student.load_state_dict(load_file(self._best_file(best.step)))
        return Distilled(
            trainer.student.eval(),
            best,
            tuple(self._held_out),
            tuple(trainer.curve),
            trainer.step_number,
            trainer.finished,
        )


def remove_run_files(folder: Path) -> None:
    """Remove checkpoints and best weights after the student was exported."""
    shutil.rmtree(folder, ignore_errors=True)

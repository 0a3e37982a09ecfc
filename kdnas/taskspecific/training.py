"""Runs that learn from the same batches, side by side: the teacher runs once a batch for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kdnas.allocator import keep_freed_memory
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.numerics import Device, derived_seed
from kdnas.errors import TrainingError
from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.stages import Stage, stages_of
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import BATCH_SIZE, KeptTeacher

SAVE_SECONDS = 60.0
"""How much work a kill loses at most."""
NUM_SAMPLES = 10
"""Held-out examples whose attention is shown one by one, as many as in the paper's Figure 3."""
DIGITS = 4
"""Of a weight that is kept to be looked at."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far runs are.

    Attributes:
        stage: 1 or 2.
        epoch: of the stage, from 1 on.
        done: steps of both stages.
        total: of both stages.
        loss: mean training loss of the epoch so far, of the first run that has not diverged.
    """

    stage: int
    epoch: int
    done: int
    total: int
    loss: float


@dataclass(frozen=True)
class HeldOut:
    """Examples that epochs are chosen by; nothing learns from them.

    Attributes:
        examples: E of them.
        ids: their names, for who looks at some.
        score: of logits (E, K) in their order.
        teacher: what the teacher says of them; None where nobody attends to it.
    """

    examples: Examples
    ids: Sequence[str]
    score: Callable[[Tensor], float]
    teacher: KeptTeacher | None = None


class Training:
    """Students that learn from the same batches in the same two stages.

    Args:
        runs: have the same batch size, epochs and seed of the order.
        examples: to learn from.
        held_out: to choose epochs by.
        seed: of the order.
        device: where everything runs.
        checkpoints: that belong to these runs alone; None saves nothing.
        keeps_end: whether the end is saved too, so that going on from it takes no step.
    """

    def __init__(
        self,
        runs: Sequence[StudentRun],
        examples: Examples,
        held_out: HeldOut,
        seed: int,
        device: Device,
        checkpoints: Checkpoints | None = None,
        *,
        keeps_end: bool = False,
    ) -> None:
        self._keeps_end = keeps_end
        self.runs, self.examples, self.held_out = runs, examples, held_out
        self._seed, self._device, self._checkpoints = seed, device, checkpoints
        hyper = runs[0].hyper
        plans = {
            (h.batch_size, h.epochs, h.finetune_epochs, h.max_steps)
            for h in (run.hyper for run in runs)
        }
        if len(plans) > 1:
            raise ValueError(
                "runs that learn from the same batches need the same batch size, epochs and most "
                f"steps, not {sorted(plans, key=repr)}"
            )
        batches = examples.plan(hyper.batch_size, 0).num_batches_per_epoch
        self.stages = stages_of(hyper, batches)
        self.total_steps = sum(stage.steps for stage in self.stages)
        self.seconds = 0.0
        for run in runs:
            run.reads_only(examples.words())
        if device == "cpu":
            keep_freed_memory()

    def run(
        self,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train to the end, from the newest checkpoint if there is one.

        Args:
            on_progress: is told of every step.
            should_stop: asked after every step.

        Returns:
            False if it was stopped, after a checkpoint.

        A run that diverges has an ``error``, and the others go on without it; where no run is left
        the training is over.

        Raises:
            StoreError: a checkpoint cannot be written or read.
        """
        began, before = time.monotonic(), 0.0
        first, done = self.stages[0], 0
        state = self._checkpoints.load() if self._checkpoints else None
        if state is not None:
            first, done, before = self._restore(state)
            self.seconds = before  # of a training that is over already
        saved = time.monotonic()
        for stage in self.stages[first.number - 1 :]:
            if stage is not first or state is None:
                for run in self._going():
                    run.begin(stage)
                done = 0
            plan = self.examples.plan(
                self.runs[0].hyper.batch_size, derived_seed("order", self._seed, stage.number)
            )
            for step in range(done, stage.steps):
                self._step(stage, step, plan.batch_indices(step))
                done = step + 1
                loss = self._going()[0].mean_loss()
                if stage.ends_epoch(done):
                    self._end_epoch(stage, done)
                if not self._going():
                    return True
                made = done + (self.stages[0].steps if stage.number == 2 else 0)
                self.seconds = before + time.monotonic() - began
                epoch = stage.epoch_of(step)
                on_progress(RunProgress(stage.number, epoch, made, self.total_steps, loss))
                stopped = should_stop() and made < self.total_steps
                if self._checkpoints and (stopped or time.monotonic() - saved >= SAVE_SECONDS):
                    self._checkpoints.save(self._state(stage, done), made)
                    saved = time.monotonic()
                if stopped:
                    return False
        if self._checkpoints and self._keeps_end:
            self._checkpoints.save(self._state(self.stages[-1], done), self.total_steps)
        return True

    def _going(self) -> list[StudentRun]:
        """Runs that have not diverged."""
        return [run for run in self.runs if run.error is None]

    def _step(self, stage: Stage, step: int, indices: Any) -> None:
        batch = self.examples.batch(indices).to(self._device)
        said: dict[int, NetworkOutputs] = {}
        for run in self._going():
            heard = None
            if run.asks_teacher(stage):
                key = id(run.teacher)
                if key not in said:
                    said[key] = run.teacher.of(batch)
                heard = said[key]
            run.step(step, batch, heard)

    def _end_epoch(self, stage: Stage, done: int) -> None:
        for run in self._going():
            run.write_back()
            shows = stage.number == 1 and bool(run.method.attending_layers())
            own = outputs_of(
                run.student, self.held_out.examples, self._device, logits_only=not shows
            )
            try:
                run.end_epoch(done, own.logits, self.held_out.score)
            except TrainingError as error:
                run.error = error
                continue
            if shows and self.held_out.teacher is not None:
                self._note_attention(run, self.held_out.teacher, own, stage, done)

    def _note_attention(
        self,
        run: StudentRun,
        teacher: KeptTeacher,
        own: NetworkOutputs,
        stage: Stage,
        done: int,
    ) -> None:
        """Keep what the student attends to, on average and of some examples."""
        method = run.method
        theirs = NetworkOutputs(teacher.logits, teacher.layers, teacher.states)
        with torch.no_grad():
            weights = method.cpu().attention(own, theirs)  # (E, J, N)
            method.to(self._device)
        if weights is None:
            return
        run.attention.append(
            {
                "epoch": stage.epoch_of(done - 1),
                "layers": list(method.attending_layers()),
                "weights": _rounded(weights.mean(0)),
            }
        )
        if done == stage.steps and teacher.layers is not None:
            space, labels = method.space, self.held_out.examples.labels
            distances = space.label_distance(space.answers(teacher.layers), labels)  # (E, N)
            run.samples = [
                {
                    "id": self.held_out.ids[row],
                    "distances": _rounded(distances[row]),
                    "weights": _rounded(weights[row, -1]),
                }
                for row in _drawn(len(labels))
            ]

    def _state(self, stage: Stage, done: int) -> dict[str, Any]:
        return {
            "stage": stage.number,
            "done": done,
            "seconds": self.seconds,
            "runs": [run.state_dict() for run in self.runs],
        }

    def _restore(self, state: dict[str, Any]) -> tuple[Stage, int, float]:
        stage = self.stages[int(state["stage"]) - 1]
        for run, own in zip(self.runs, state["runs"], strict=True):
            run.load_state_dict(own, stage)
        return stage, int(state["done"]), float(state["seconds"])


def outputs_of(
    student: TaskStudent, examples: Examples, device: Device, *, logits_only: bool = False
) -> NetworkOutputs:
    """What a student says of examples, in their order: eval mode, float32, on the CPU.

    Args:
        student: whose outputs.
        examples: E of them.
        device: where the student is.
        logits_only: whether what is beside the logits is left out.
    """
    if not len(examples):
        raise ValueError("there are no examples")
    was_training = student.training
    student.eval()
    order = examples.in_order(BATCH_SIZE)
    with torch.no_grad():
        said = [
            student(examples.batch(indices).to(device).inputs, logits_only=logits_only)
            for indices in order
        ]
    student.train(was_training)
    places = torch.cat([torch.from_numpy(indices) for indices in order]).argsort()

    def joined(parts: list[Tensor | None]) -> Tensor | None:
        found = [part.float().cpu() for part in parts if part is not None]
        return torch.cat(found)[places] if found else None

    logits = joined([one.logits for one in said])
    assert logits is not None
    return NetworkOutputs(
        logits, joined([one.layers for one in said]), joined([one.states for one in said])
    )


def _rounded(values: Tensor) -> Any:
    return (values.double() * 10**DIGITS).round().div(10**DIGITS).tolist()


def _drawn(count: int) -> list[int]:
    """Some of the held-out examples, the same for all methods and seeds."""
    generator = torch.Generator().manual_seed(0)
    return sorted(torch.randperm(count, generator=generator)[:NUM_SAMPLES].tolist())

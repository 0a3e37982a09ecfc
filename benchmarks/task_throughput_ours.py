"""Distillation for one task by our engine, and what it costs to keep the teacher's outputs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from task_throughput_rows import STEPS, Clock, Round
from task_throughput_student import gradient_of, made_student
from torch import Tensor

from kdnas.distill.numerics import autocast
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.taskspecific.examples import Indices, TaskBatch
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.stages import Hyperparameters, Stage
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import (
    RunningTeacher,
    TeacherOutputs,
    run_over,
    running_teacher,
)
from kdnas.taskspecific.training import HeldOut, Training
from workers.task.ready import ReadyTask
from workers.task.students import network_of


class Watched:
    """A teacher, and the time it takes."""

    def __init__(self, teacher: TeacherOutputs) -> None:
        self._teacher, self.seconds = teacher, 0.0

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """What it says of a batch."""
        began = time.process_time()
        said = self._teacher.of(batch)
        self.seconds += time.process_time() - began
        return said


class Ours:
    """The engine, put together as a distillation for a task does it."""

    def __init__(
        self,
        ready: ReadyTask,
        teacher: TeacherOutputs,
        methods: Sequence[str],
        hyper: Hyperparameters,
        dtype: str,
    ) -> None:
        self.teacher = Watched(teacher)
        checked = ready.checked
        self.runs = []
        for name in methods:
            kind = method_named(name)
            network = network_of(made_student(checked, hyper.dropout))
            setting = checked.setting(checked.teacher_shape, hyper.beta, 0)
            student = TaskStudent(
                network,
                setting.space.size,
                classifies_layers=kind.needs_student_layers,
                reads_states=kind.needs_teacher_states,
                seed=0,
            )
            run = StudentRun(student, kind(setting), self.teacher, hyper, 0, "cpu", dtype)
            self.runs.append(run)
        held_out = HeldOut(ready.held_out.tokens, [], lambda _: 0.0)
        self._training = Training(self.runs, ready.train.tokens, held_out, 0, "cpu")
        self._stage = Stage(1, STEPS, STEPS)
        for run in self.runs:
            run.begin(self._stage)
        self._step = 0

    def train(self, groups: Iterable[Indices]) -> Round:
        """Make a step on each batch."""
        clock, before = Clock(), self.teacher.seconds
        for indices in groups:
            self._training._step(self._stage, self._step, indices)
            self._step += 1
        return clock.read(self.teacher.seconds - before)

    def gradient(self, batch: TaskBatch) -> Tensor:
        """Gradient of the loss of a batch, with the weights as they are."""
        (run,) = self.runs
        run.student.eval()
        with autocast("cpu", "float32"):
            own = run.student(batch.inputs)
        loss: Any = run._loss(self._stage, 0, own, batch, self.teacher.of(batch))
        loss.backward()
        return gradient_of(run.student.model)


def teacher_in(ready: ReadyTask, dtype: str) -> RunningTeacher:
    """Load the teacher, to be run in a number format."""
    data = ready.checked.data
    loaded = load_task_model(ready.model, data.task, data.labels, 0.0, 0)
    return running_teacher(network_of(loaded), "cpu", dtype, ready.classifiers)


def cost_of_keeping(ready: ReadyTask, dtype: str) -> dict[str, float]:
    """What it takes to keep the outputs: one pass over the examples, and memory."""
    clock = Clock()
    examples = ready.train.tokens
    with TemporaryDirectory() as scratch:
        kept = run_over(teacher_in(ready, dtype), examples, Path(scratch))
    states = kept.states
    assert states is not None
    return {
        "examples": len(examples),
        "tokens": int(examples.lengths.sum()),
        "seconds": clock.read().cpu,
        "bytes_of_outputs": 4 * (1 + states.shape[1]) * kept.logits.shape[1],
        "bytes_of_states": 4 * states.shape[1] * states.shape[2],
    }

"""Fine-tuning on one task, and the scores that come out of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from kdnas.distill.numerics import Device, choose_device, num_threads
from kdnas.errors import TaskDataError
from kdnas.evaluation.data.splitting import for_tuning, tuned_on
from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.int8 import INT8_NOTE, task_model_in_int8
from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.saving import may_deny, save_task_model
from kdnas.evaluation.finetuning.span import SpanEncoding
from kdnas.evaluation.finetuning.tagging import TaggingEncoding
from kdnas.evaluation.finetuning.text import TextEncoding, mean_number
from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress, Trained, Training
from kdnas.evaluation.results import Prediction, TaskResult, main_score
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import Example, TaskData
from kdnas.models.teacher import TeacherHandle, quiet_transformers

KEPT_MODEL = "model"
"""Folder of a model that is kept, beside the checkpoints of its fine-tuning."""


class Encoding(Protocol):
    """How the examples of a kind of task become batches, and outputs become predictions."""

    def items(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return what is trained on, an item a row of a batch."""

    def collate(self, items: Sequence[Any]) -> Mapping[str, Tensor]:
        """Make a training batch, labels included."""

    def predict(self, examples: Sequence[Any], forward: Forward) -> list[Prediction]:
        """Predict every example, in their order."""


def finetune(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    seed: int,
    checkpoints: Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    int8: bool = False,
    keep: Path | None = None,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TaskResult | None:
    """Fine-tune a model on a task and score it on the task's evaluation sets.

    The same inputs give the same scores on the same machine, interrupted or not. Training goes on
    from the newest checkpoint in ``checkpoints``; whoever has stored the result removes the folder.

    Args:
        model: on this machine.
        data: examples to learn from and to be scored on. Early stopping chooses the epoch by
            those that ``data.splitting.for_tuning`` keeps for it.
        settings: hyper-parameters.
        seed: of the head, the order of the examples, and dropout.
        checkpoints: folder that belongs to this fine-tuning alone.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights before the scoring.
        keep: folder to write the fine-tuned model to; None keeps its figures alone.
        on_progress: is told how it goes.
        should_stop: asked between steps; True ends this run after a checkpoint.

    Returns:
        The result, or None if it was stopped.

    Raises:
        TaskDataError: there is nothing to learn from or to be scored on.
        TrainingError: training diverged.
        StoreError: a checkpoint cannot be written.
        TeacherError: the model does not load.
    """
    parts = {"train": data.train, **data.evaluations}
    empty = next((name for name, part in parts.items() if not part), None)
    if empty is not None:
        raise TaskDataError(
            f"the part {empty!r} of {data.task.name} has no examples; check the files "
            f"{', '.join(data.sources)}"
        )
    with tidy_process(threads):
        task_model = load_task_model(
            model, data.task, data.labels, settings.dropout, seed, centre=mean_number(data)
        )
        scored = Scored(task_model, data, settings, choose_device(device), on_progress)
        tuning = for_tuning(data) if settings.early_stopping is not None else data
        training = Training(
            task_model.model,
            scored.encoding.items(tuning.train),
            scored.encoding.collate,
            settings,
            seed,
            checkpoints,
            scored.device,
            Scored(task_model, tuning, settings, scored.device, on_progress).main,
        )
        trained = training.run(on_progress, should_stop)
        if trained is None:
            return None
        if keep is not None:
            save_task_model(keep, task_model, model, data, settings, seed)
        with ExitStack() as stack:
            if int8:
                small = stack.enter_context(task_model_in_int8(task_model, data.task.kind, model))
                scored = Scored(small, data, settings, "cpu", on_progress)
            result = scored.result(trained, training)
        notes = (*result.notes, INT8_NOTE) if int8 else result.notes
        return replace(result, train_examples=len(tuning.train), notes=notes)


class Scored:
    """A model on a task's evaluation sets."""

    def __init__(
        self,
        task_model: TaskModel,
        data: TaskData,
        settings: FinetuneSettings,
        device: Device,
        on_progress: OnProgress,
    ) -> None:
        self.data, self.settings, self.device = data, settings, device
        self.task_model, self.on_progress = task_model, on_progress
        self.encoding = encoding_of(task_model, data, settings)

    def main(self) -> float:
        """The task's score at present."""
        return main_score(self.data.task, self.metrics(self.predictions()))

    def result(self, trained: Trained, training: Training) -> TaskResult:
        """Score the trained model."""
        data, began = self.data, time.monotonic()
        predictions = self.predictions()
        metrics = self.metrics(predictions)
        return TaskResult(
            task=data.task.name,
            suite=data.task.suite,
            seed=training.seed,
            settings=self.settings,
            metrics=metrics,
            main=main_score(data.task, metrics),
            seconds=trained.seconds + time.monotonic() - began,
            steps=trained.steps,
            train_examples=len(data.train),
            official_split=data.official_split,
            sources=data.sources,
            notes=(*data.notes, *self._notes(training)),
            predictions=predictions,
        )

    def predictions(self) -> dict[str, tuple[Prediction, ...]]:
        """What the model says of each evaluation set at present."""
        return {name: self._predict(name, part) for name, part in self.data.evaluations.items()}

    def _predict(self, name: str, examples: Sequence[Example]) -> tuple[Prediction, ...]:
        done = 0

        def tell(count: int, total: int) -> None:
            nonlocal done
            done += count
            self.on_progress(FinetuneProgress(name, done, total))

        forward = Forward(self.task_model.model, self.device, self.settings.dtype, on_batch=tell)
        return tuple(self.encoding.predict(examples, forward))

    def metrics(
        self, predictions: Mapping[str, Sequence[Prediction]]
    ) -> dict[str, dict[str, float]]:
        """All metrics of what was said, by evaluation set."""
        return {
            name: judge(self.data.task, predictions[name], examples)
            for name, examples in self.data.evaluations.items()
        }

    def _notes(self, training: Training) -> list[str]:
        notes = []
        if training.is_cut:
            steps = training.total_steps
            notes.append(f"training was cut to {steps} step{'' if steps == 1 else 's'}")
        chosen, grid = self.settings, self.settings.grid
        if grid is not None:
            notes.append(
                f"learning rate {chosen.learning_rate:g} and {chosen.epochs:g} epochs were chosen "
                f"from a grid of {grid.size} on {tuned_on(self.data)}"
            )
        if self.settings.early_stopping is not None:
            notes.append(f"the epoch was chosen on {tuned_on(self.data)}")
        return notes


def encoding_of(task_model: TaskModel, data: TaskData, settings: FinetuneSettings) -> Encoding:
    """Return how the examples of a task become batches for a model."""
    length = min(settings.max_length, task_model.max_length)
    if data.task.kind == "span":
        denies = may_deny(data.train)
        return SpanEncoding(task_model, length, settings.stride, may_deny=denies)
    if data.task.kind == "tagging":
        return TaggingEncoding(task_model, data.labels or (), length)
    several = data.task.kind == "multilabel"
    return TextEncoding(task_model, data.labels, length, several=several)


@contextmanager
def tidy_process(threads: int | None) -> Iterator[None]:
    """Train quietly for the time of a ``with`` block; then the process is as it was.

    Args:
        threads: intra-op threads on a CPU; None leaves them as they are.
    """
    with ExitStack() as machine:
        if threads is not None:
            machine.enter_context(num_threads(threads))
        machine.enter_context(_own_random_state())
        machine.enter_context(quiet_transformers())
        yield


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Give the process its random states back, which the Trainer seeds anew."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])

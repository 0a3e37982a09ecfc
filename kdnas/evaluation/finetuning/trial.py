"""One trial of a grid: a fine-tuning that is scored on the way, on examples held out for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from kdnas.distill.numerics import choose_device
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.grid import GRID_SEED, QUARTERS, GridPoint
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.finetuning.run import Scored, tidy_process
from kdnas.evaluation.finetuning.text import mean_number
from kdnas.evaluation.finetuning.training import Training
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.models.teacher import TeacherHandle

OnReading = Callable[[int, float], None]


def run_trial(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    point: GridPoint,
    on_reading: OnReading,
    *,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Fine-tune with the learning rate and the epochs of a point.

    Nothing is saved on the way: a trial is short, and one that was killed begins anew.

    Args:
        model: on this machine.
        data: of the task; what is scored in the end is not looked at.
        settings: all other hyper-parameters.
        point: what is tried.
        on_reading: is told the task's main score after each of the ``QUARTERS`` of the steps, with
            the quarter; may end the trial by an exception.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.

    Raises:
        TaskDataError: there are too few examples to hold some out.
        TrainingError: training diverged.
        TeacherError: the model does not load.
    """
    tuning = for_tuning(data)
    tried = point.applied_to(settings)
    with tidy_process(threads), tempfile.TemporaryDirectory(prefix="kdnas-trial-") as folder:
        task_model = load_task_model(
            model, data.task, data.labels, tried.dropout, GRID_SEED, centre=mean_number(data)
        )
        scored = Scored(task_model, tuning, tried, choose_device(device), lambda _: None)
        training = Training(
            task_model.model,
            scored.encoding.items(tuning.train),
            scored.encoding.collate,
            tried.without_choices(),
            GRID_SEED,
            Path(folder),
            scored.device,
            scored.main,
            saves=False,
        )
        readings = _Readings(training.total_steps, scored.main, on_reading)
        training.run(lambda _: None, lambda: False, [readings])


class _Readings(TrainerCallback):  # type: ignore[misc]
    """Scores the model when a quarter is over; of quarters of no length the last one counts."""

    def __init__(self, total_steps: int, score: Callable[[], float], on_reading: OnReading) -> None:
        self._quarters = {ceil(total_steps * quarter / 4): quarter for quarter in QUARTERS}
        self._score, self._on_reading = score, on_reading

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        quarter = self._quarters.get(state.global_step)
        if quarter is not None:
            self._on_reading(quarter, self._score())

"""Students of a task that have learned: scored, and saved with a card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.finetuning.run import Scored
from kdnas.evaluation.finetuning.saving import save_task_model
from kdnas.evaluation.results import TaskResult, main_score
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.records import TaskRun
from kdnas.specs.task_distillation import TRIED
from kdnas.taskspecific.card import write_card
from kdnas.taskspecific.stages import Hyperparameters
from kdnas.taskspecific.student_run import StudentRun
from workers.task.ready import ReadyTask


@dataclass(frozen=True)
class FinishedTaskRun:
    """A run that has come to its end.

    Attributes:
        run: how it went.
        result: its scores, with what was said of each example.
    """

    run: TaskRun
    result: TaskResult


def scored_run(
    ready: ReadyTask,
    student: TaskModel,
    run: StudentRun,
    seed: int,
    hyper: Hyperparameters,
    seconds: float,
) -> FinishedTaskRun:
    """Score a student on what is reported.

    Args:
        ready: the task.
        student: with the weights of its best epoch.
        run: how it came to them.
        seed: of the run.
        hyper: what it was trained with.
        seconds: that this took.
    """
    data, settings = ready.checked.data, _as_finetuned(hyper)
    best = run.best
    assert best is not None
    scored = Scored(student, data, settings, ready.checked.device, lambda _: None)
    predictions = scored.predictions()
    metrics = scored.metrics(predictions)
    steps = run.curve[-1]["step"] + max(
        (point["step"] for point in run.curve if point["stage"] == 1), default=0
    )
    main = main_score(data.task, metrics)
    result = TaskResult(
        task=data.task.name,
        suite=data.task.suite,
        seed=seed,
        settings=settings,
        metrics=metrics,
        main=main,
        seconds=seconds,
        steps=steps,
        train_examples=len(ready.train.tokens),
        official_split=data.official_split,
        sources=data.sources,
        notes=data.notes,
        predictions=predictions,
    )
    chosen = {"stage": best.stage, "epoch": best.epoch}
    with_ = {name: getattr(hyper, name) for name in TRIED}
    if not run.method.uses_beta:
        with_["beta"] = None
    return FinishedTaskRun(
        TaskRun(
            method=run.method.name,
            seed=seed,
            main=main,
            metrics=metrics,
            held_out=best.score,
            chosen={**chosen, **with_},
            curve=tuple(run.curve),
            attention=tuple(run.attention),
            samples=tuple(run.samples),
            steps=steps,
            seconds=seconds,
        ),
        result,
    )


def save_student(
    ready: ReadyTask, student: TaskModel, run: TaskRun, folder: Path, hyper: Hyperparameters
) -> None:
    """Save a student, with its card; whole or not at all.

    Args:
        ready: the task.
        student: to be saved.
        run: what it has come to.
        folder: where it goes.
        hyper: what it was trained with.

    Raises:
        StoreError: the disk is full or not writable.
    """
    save_task_model(
        folder,
        student,
        ready.checked.student.origin,
        ready.checked.data,
        _as_finetuned(hyper),
        run.seed,
        lambda draft: write_card(draft, ready.spec, ready.facts, run),
    )


def _as_finetuned(hyper: Hyperparameters) -> FinetuneSettings:
    """The same in the words of a fine-tuning, for what reads scores."""
    return FinetuneSettings(
        learning_rate=hyper.learning_rate,
        epochs=hyper.epochs + hyper.finetune_epochs,
        batch_size=hyper.batch_size,
        max_length=hyper.max_length,
        max_steps=hyper.max_steps,
        warmup_fraction=hyper.warmup_fraction,
        weight_decay=hyper.weight_decay,
        dropout=hyper.dropout,
        max_grad_norm=hyper.max_grad_norm,
    )

"""The figures of a model that was not trained for a task."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kdnas.evaluation.results import Prediction, TaskResult, main_score
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData


def untrained_result(
    data: TaskData,
    settings: FinetuneSettings,
    predictions: Mapping[str, tuple[Prediction, ...]],
    notes: Sequence[str],
    began: float,
) -> TaskResult:
    """Score what a model said.

    Args:
        data: of the task.
        settings: of a task that is not trained.
        predictions: evaluation set → what was said of its examples, in their order.
        notes: what a reader should know of how it was said; those of the data are added.
        began: by the monotonic clock, when the work began.
    """
    metrics = {
        name: judge(data.task, predictions[name], examples)
        for name, examples in data.evaluations.items()
    }
    return TaskResult(
        task=data.task.name,
        suite=data.task.suite,
        seed=0,
        settings=settings,
        metrics=metrics,
        main=main_score(data.task, metrics),
        seconds=time.monotonic() - began,
        steps=0,
        train_examples=0,
        official_split=data.official_split,
        sources=data.sources,
        notes=(*notes, *data.notes),
        predictions=predictions,
    )

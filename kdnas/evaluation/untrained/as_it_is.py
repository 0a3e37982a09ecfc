"""A fine-tuned model on a task's evaluation sets, with the head that it has: nothing is trained."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from kdnas.distill.numerics import choose_device
from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.int8 import INT8_NOTE, task_model_in_int8
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.finetuning.run import encoding_of, tidy_process
from kdnas.evaluation.finetuning.saving import may_deny, read_saved_task
from kdnas.evaluation.finetuning.span import SpanEncoding
from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress
from kdnas.evaluation.results import Prediction, TaskResult
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.untrained.own_head import labels_of_head
from kdnas.evaluation.untrained.result import untrained_result
from kdnas.models.teacher import TeacherHandle
from kdnas.reach import ANYWHERE, Reach

AS_IT_IS_NOTE: Final = "the model as it is, with its own head: nothing was trained"
_CHUNK = 1024


class _StoppedScoringError(Exception):
    """Ends forward passes that nobody wants any more."""


def score_as_it_is(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    *,
    device: str = "auto",
    threads: int | None = None,
    int8: bool = False,
    reach: Reach = ANYWHERE,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TaskResult | None:
    """Score a model that somebody has fine-tuned.

    Args:
        model: with a head, on this machine.
        data: of the task; what is to be learned from is not looked at.
        settings: of a task that is not trained: longest input, stride, and format.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights before.
        reach: how the folder that was named is opened, which others may write to.
        on_progress: is told how it goes.
        should_stop: asked between batches.

    Returns:
        The result, or None if it was stopped.

    Raises:
        RequestError: the model has no head, or one for something else, or does not know a label;
            or what it says of itself is out of reach.
        TeacherError: the model does not load.
    """
    began = time.monotonic()
    labels, renamed = labels_of_head(model, data)
    predictions: dict[str, tuple[Prediction, ...]] = {}

    def stop() -> None:
        if should_stop():
            raise _StoppedScoringError

    with tidy_process(threads), ExitStack() as stack:
        task_model = load_task_model(model, data.task, labels, 0.0, 0, needs_head=True)
        where = choose_device(device)
        if int8:
            graph = task_model_in_int8(task_model, data.task.kind, model)
            task_model, where = stack.enter_context(graph), "cpu"
        task_model.model.to(where).eval()
        encoding = encoding_of(task_model, replace(data, labels=labels), settings)
        if data.task.kind == "span":
            length = min(settings.max_length, task_model.max_length)
            denies = _may_deny(model, data, reach)
            encoding = SpanEncoding(task_model, length, settings.stride, may_deny=denies)
        forward = Forward(task_model.model, where, settings.dtype, before_batch=stop)
        for name, examples in data.evaluations.items():
            found: list[Prediction] = []
            for start in range(0, len(examples), _CHUNK):
                try:
                    found += encoding.predict(examples[start : start + _CHUNK], forward)
                except _StoppedScoringError:
                    return None
                on_progress(FinetuneProgress(name, len(found), len(examples)))
            predictions[name] = tuple(found)
    notes = (AS_IT_IS_NOTE, *renamed, *([INT8_NOTE] if int8 else []))
    return untrained_result(data, settings, predictions, notes, began)


def _may_deny(model: TeacherHandle, data: TaskData, reach: Reach) -> bool:
    """Whether the model has learned to deny answers, or else whether there are questions for it."""
    # The copy of a folder that was named lacks it; no other folder is limited.
    saved = read_saved_task(model.source or model.folder, reach if model.source else ANYWHERE)
    every = [example for part in data.evaluations.values() for example in part]
    return may_deny(every) if saved is None else saved.may_deny

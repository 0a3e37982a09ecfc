"""Scores of a model that is taken as it is, whatever the task asks of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

from kdnas.evaluation.finetuning.training import OnProgress
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.untrained.as_it_is import score_as_it_is
from kdnas.evaluation.untrained.retrieval import score_by_retrieval
from kdnas.evaluation.untrained.similarity import score_by_cosine
from kdnas.models.teacher import TeacherHandle
from kdnas.reach import ANYWHERE, Reach


class Told(TypedDict, total=False):
    """How the machine is used, and who is told: all that the ways of scoring share."""

    device: str
    threads: int | None
    int8: bool
    on_progress: OnProgress
    should_stop: Callable[[], bool]


def score_untrained(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    *,
    reach: Reach = ANYWHERE,
    **told: Unpack[Told],
) -> TaskResult | None:
    """Score a model on a task that it is not trained for, by its own head or its embeddings.

    Args:
        model: on this machine.
        data: of the task.
        settings: of a task that is not trained.
        reach: how the folder that was named is opened, which others may write to.
        told: as :func:`~kdnas.evaluation.untrained.similarity.score_by_cosine` takes it.

    Returns:
        The result, or None if it was stopped.

    Raises:
        RequestError: the model's head is not for the task.
        TeacherError: the model does not load, or embeds in a way that is not known here.
        TaskDataError: an example lacks a text.
    """
    if data.task.way == "own head":
        return score_as_it_is(model, data, settings, reach=reach, **told)
    if data.task.kind == "retrieval":
        return score_by_retrieval(model, data, settings, **told)
    return score_by_cosine(model, data, settings, **told)

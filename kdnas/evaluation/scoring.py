"""From predictions to metrics, for every kind of task."""

from __future__ import annotations

from collections.abc import Sequence

from kdnas.evaluation.examples import Example, TaggedExample, TextExample
from kdnas.evaluation.metrics import score
from kdnas.evaluation.results import Prediction
from kdnas.evaluation.task import Task


def judge(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Example]
) -> dict[str, float]:
    """Return all metrics of a task; predictions and examples are in the same order."""
    references: list[object] = []
    for example in examples:
        if isinstance(example, TextExample):
            references.append(example.label)
        elif isinstance(example, TaggedExample):
            references.append(example.tags)
        else:
            raise TypeError(f"{type(example).__name__} is not scored here")
    return score(task, [p.prediction for p in predictions], references)

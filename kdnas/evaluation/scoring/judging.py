"""From predictions to metrics, for every kind of task."""

from __future__ import annotations

from collections.abc import Sequence

from kdnas.evaluation.results import Prediction
from kdnas.evaluation.scoring.answers import score_spans
from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.scoring.ranking import score_retrieval
from kdnas.evaluation.tasks.examples import (
    Example,
    RetrievalExample,
    SpanExample,
    TaggedExample,
    TextExample,
)
from kdnas.evaluation.tasks.task import Task


def judge(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Example]
) -> dict[str, float]:
    """Return all metrics of a task; predictions and examples are in the same order."""
    if task.kind == "span":
        return _judge_spans(task, predictions, examples)
    if task.kind == "retrieval":
        queries = [e for e in examples if isinstance(e, RetrievalExample)]
        rankings = [p.prediction for p in predictions if isinstance(p.prediction, tuple)]
        return score_retrieval(task.metrics, rankings, queries)
    references = [e.tags if isinstance(e, TaggedExample) else _label(e) for e in examples]
    shares = [p.probabilities for p in predictions if p.probabilities is not None]
    known = shares if len(shares) == len(predictions) else None
    return score(task, [p.prediction for p in predictions], references, known)


def _judge_spans(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Example]
) -> dict[str, float]:
    denials = {p.id: p.denial for p in predictions if p.denial is not None}
    return score_spans(
        task,
        {p.id: str(p.prediction if p.best_span is None else p.best_span) for p in predictions},
        [e for e in examples if isinstance(e, SpanExample)],
        denials or None,
    )


def _label(example: Example) -> str | float | tuple[str, ...] | None:
    if not isinstance(example, TextExample):
        raise TypeError(f"{type(example).__name__} has no label")
    return example.label

"""Similarity of sentences by the cosine of their embeddings, without fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kdnas.errors import TaskDataError
from kdnas.evaluation.finetuning.int8 import INT8_NOTE
from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress
from kdnas.evaluation.results import Prediction, TaskResult
from kdnas.evaluation.scoring.significance import Pair
from kdnas.evaluation.scoring.tally import tally
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample, places
from kdnas.evaluation.untrained.embedding import embedder
from kdnas.evaluation.untrained.result import untrained_result
from kdnas.evaluation.untrained.words import beside_words, words_in_common
from kdnas.models.teacher import TeacherHandle


def score_by_cosine(
    model: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    *,
    device: str = "auto",
    threads: int | None = None,
    int8: bool = False,
    on_progress: OnProgress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TaskResult | None:
    """Score a model's sentence embeddings on a task of similar sentences.

    The cosine of a pair stands for its similarity, on another scale: correlations do not mind, and
    the score of an example is how far its rank among all pairs is from the right one, negative, as
    a share of their number. What words in common alone come to is noted beside.

    Args:
        model: on this machine.
        data: pairs of texts with numbers; there is nothing to train.
        settings: of which the batch size, the longest text and the number format count.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights.
        on_progress: is told how it goes.
        should_stop: asked between batches.

    Returns:
        The result, or None if it was stopped.

    Raises:
        TeacherError: the model does not load, or pools in a way that is not known here.
        TaskDataError: an example has no second text.
    """
    began = time.monotonic()
    predictions: dict[str, tuple[Prediction, ...]] = {}
    sets: list[Pair] = []
    with embedder(model, settings, device=device, threads=threads, int8=int8) as embed:
        for name, examples in data.evaluations.items():
            pairs = [_pair(example, data) for example in examples]
            texts = [pair[i] for i in (0, 1) for pair in pairs]

            def tell(done: int, name: str = name, total: int = len(texts)) -> None:
                on_progress(FinetuneProgress(name, done, total))

            vectors = embed(texts, tell, should_stop)
            if vectors is None:
                return None
            first, second = vectors.chunk(2)
            cosines = (first * second).sum(-1).tolist()
            predictions[name] = _predictions(examples, cosines)
            sets.append(_beside(data, examples, cosines, words_in_common(pairs)))
    beside = beside_words("TF-IDF", data.task.main_metric, sets)
    notes = (*embed.notes, beside, *([INT8_NOTE] if int8 else []))
    return untrained_result(data, settings, predictions, notes, began)


def _pair(example: Example, data: TaskData) -> tuple[str, str]:
    if not isinstance(example, TextExample) or example.pair is None:
        raise TaskDataError(
            f"example {example.id!r} of {data.task.name}{places([example])} has no second text; "
            f"check the files {', '.join(data.sources)}"
        )
    return example.text, example.pair


def _beside(
    data: TaskData, examples: Sequence[Example], cosines: Sequence[float], words: Sequence[float]
) -> Pair:
    """The model's cosines and those of words, taken apart as the task's main metric is."""
    right = [e.number for e in examples if isinstance(e, TextExample)]
    metric = data.task.main_metric
    return tally(metric, cosines, right), tally(metric, words, right)


def _predictions(examples: Sequence[Example], cosines: Sequence[float]) -> tuple[Prediction, ...]:
    from scipy.stats import rankdata

    labels = [e.number for e in examples if isinstance(e, TextExample)]
    distances = abs(rankdata(cosines) - rankdata(labels)) / len(examples)
    return tuple(
        Prediction(example.id, cosine, -float(distance), label, example.asked())
        for example, cosine, distance, label in zip(
            examples, cosines, distances, labels, strict=True
        )
    )

"""Passages that answer a query, found by the cosine of embeddings, without fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from torch import Tensor

from kdnas.evaluation.finetuning.int8 import INT8_NOTE
from kdnas.evaluation.finetuning.training import FinetuneProgress, OnProgress
from kdnas.evaluation.results import Prediction, TaskResult
from kdnas.evaluation.scoring.ranking import cutoff_of, score_ranking
from kdnas.evaluation.scoring.significance import Pair
from kdnas.evaluation.scoring.tally import mean_of
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import RetrievalExample, TaskData
from kdnas.evaluation.untrained.embedding import embedder
from kdnas.evaluation.untrained.result import untrained_result
from kdnas.evaluation.untrained.words import beside_words, ranked_by_words
from kdnas.models.sentence_texts import prompts_of
from kdnas.models.teacher import TeacherHandle

_COSINES: Final = 1 << 24
"""That are sorted at once."""


def score_by_retrieval(
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
    """Score how well a model's embeddings find the passages that answer a query.

    All passages are ranked by the cosine with the query, those that are equally near in their
    order. The prompts that a model's files have for queries and passages are put before them. Where
    a query is itself among the passages, under its own id, it is not found. What words in common
    alone come to, by BM25, is noted beside.

    Args:
        model: on this machine.
        data: queries and passages.
        settings: of which the batch size, the longest text and the number format count.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU; None leaves them as they are.
        int8: quantise the weights.
        on_progress: is told how it goes.
        should_stop: asked between batches.

    Returns:
        The result, or None if it was stopped. What was found goes as far as a metric looks.

    Raises:
        TeacherError: the model does not load, or embeds in a way that is not known here.
    """
    began = time.monotonic()
    prompts = prompts_of(model.sentences, model.ref)
    depth = max(map(cutoff_of, data.task.metrics))
    predictions: dict[str, tuple[Prediction, ...]] = {}
    names = list(data.passages)
    sets: list[Pair] = []

    def told(phase: str, total: int) -> Callable[[int], None]:
        return lambda done: on_progress(FinetuneProgress(phase, done, total))

    with embedder(model, settings, device=device, threads=threads, int8=int8) as embed:
        texts = [prompts.passage + text for text in data.passages.values()]
        passages = embed(texts, told("passages", len(texts)), should_stop)
        if passages is None:
            return None
        for name, examples in data.evaluations.items():
            queries = [one for one in examples if isinstance(one, RetrievalExample)]
            asked = [prompts.query + one.query for one in queries]
            vectors = embed(asked, told(name, len(asked)), should_stop)
            if vectors is None:
                return None
            found = nearest(vectors, passages, depth + 1)  # one may be the query itself
            by_words = ranked_by_words(
                [one.query for one in queries], list(data.passages.values()), depth + 1
            )
            predictions[name], others = (
                tuple(
                    _prediction(one, [names[place] for place in places], data, depth)
                    for one, places in zip(queries, ranked, strict=True)
                )
                for ranked in (found, by_words)
            )
            scores = [[one.score for one in said] for said in (predictions[name], others)]
            sets.append((mean_of(scores[0]), mean_of(scores[1])))
    beside = beside_words("BM25", data.task.main_metric, sets)
    notes = [*embed.notes, f"{len(names)} passages", beside, *prompts.notes]
    return untrained_result(
        data, settings, predictions, notes + ([INT8_NOTE] if int8 else []), began
    )


def nearest(queries: Tensor, passages: Tensor, count: int) -> list[list[int]]:
    """Rank passages by their cosine with each query.

    Args:
        queries: (Q, D) of length 1.
        passages: (P, D) of length 1.
        count: how many are wanted.

    Returns:
        Of each query places of passages, the nearest first, of those that are equally near the
        first; ``count`` of them, or as many as there are.
    """
    found: list[list[int]] = []
    some_at_once = max(1, _COSINES // len(passages))
    for start in range(0, len(queries), some_at_once):
        some = queries[start : start + some_at_once]
        order = (some @ passages.T).argsort(dim=-1, descending=True, stable=True)
        found += order[:, :count].tolist()
    return found


def _prediction(
    example: RetrievalExample, found: Sequence[str], data: TaskData, depth: int
) -> Prediction:
    itself = data.passages.get(example.id) == example.query and example.id not in example.grades
    ranking = tuple(name for name in found if not (itself and name == example.id))[:depth]
    return Prediction(
        id=example.id,
        prediction=ranking,
        score=score_ranking(data.task.main_metric, ranking, example.grades),
        gold=tuple(example.grades),
        asked=example.asked(),
        passage=data.passages[ranking[0]] if ranking else None,
    )

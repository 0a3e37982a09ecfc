"""Scores of answers to questions, by the rules of SQuAD 1.1 and 2.0 and of MLQA."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from kdnas.evaluation.tasks.examples import SpanExample
from kdnas.evaluation.tasks.task import Task

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# What MLQA's own program takes for articles; in Arabic it drops the two letters anywhere.
_ARTICLES_OF = {
    "en": _ARTICLES,
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "vi": re.compile(r"\b(?:của|là|cái|chiếc|những)\b"),
    "ar": re.compile("ال"),
}
Measure = Callable[[str, str, str | None], float]
_CHINESE = re.compile("([\u4e00-\u9fa5])")


def score_spans(
    task: Task,
    predictions: Mapping[str, str],
    examples: Sequence[SpanExample],
    no_answer_scores: Mapping[str, float] | None = None,
    no_answer_threshold: float = 0.0,
) -> dict[str, float]:
    """Score answers by the rules of SQuAD 1.1, or of SQuAD 2.0 where there are impossible ones.

    Text is compared without case, punctuation, articles and extra blanks. An exact match counts 1;
    F1 is that of the two bags of words. Of several accepted answers the best counts. The right
    answer to an impossible question is the empty text; an empty text against any other answer, or
    the reverse, counts 0 (Rajpurkar et al. 2018). Questions that name a language are compared by
    MLQA's rules for it.

    ``best_f1`` and ``best_exact_match`` are what the best threshold would give. It is chosen on
    the very examples that are scored, as the official program does, so that they are an upper
    bound; unlike there, equal no-answer scores stay together.

    Args:
        task: a span task.
        predictions: id → best answer, as text.
        examples: the questions.
        no_answer_scores: id → how strongly the model denies an answer, on any scale; None leaves
            the predictions as they are.
        no_answer_threshold: where a no-answer score lies above it, the answer is empty.

    Returns:
        ``f1`` and ``exact_match``; with impossible questions also ``no_answer_accuracy``,
        ``has_answer_f1`` and ``has_answer_exact_match``; with no-answer scores as well, also
        ``best_f1``, ``best_exact_match`` and each with ``_threshold``.

    Raises:
        ValueError: the task is of another kind, a question has no prediction or no no-answer
            score, or there is no question.
    """
    if task.kind != "span":
        raise ValueError(f"{task.name} is a task of kind {task.kind}, not of spans")
    if not examples:
        raise ValueError("there is no question to score")
    for name, values in (("prediction", predictions), ("no-answer score", no_answer_scores)):
        missing = [e.id for e in examples if values is not None and e.id not in values]
        if missing:
            raise ValueError(f"{len(missing)} questions have no {name}, such as {missing[0]!r}")
    impossible = np.array([not example.answers for example in examples])
    answers = apply_threshold(predictions, no_answer_scores, no_answer_threshold)
    f1, exact = (_scored(measure, answers, examples) for measure in (bag_f1, exact_match))
    scores = {"f1": float(f1.mean()), "exact_match": float(exact.mean())}
    if not impossible.any():
        return scores
    scores["no_answer_accuracy"] = float(exact[impossible].mean())
    if not impossible.all():
        scores["has_answer_f1"] = float(f1[~impossible].mean())
        scores["has_answer_exact_match"] = float(exact[~impossible].mean())
    if no_answer_scores is not None:
        denials = np.array([no_answer_scores[example.id] for example in examples])
        for name, measure in (("f1", bag_f1), ("exact_match", exact_match)):
            kept = _scored(measure, predictions, examples)
            best, threshold = best_threshold(kept, impossible, denials)
            scores[f"best_{name}"], scores[f"best_{name}_threshold"] = best, threshold
    return scores


def score_answer(prediction: str, example: SpanExample) -> tuple[float, float]:
    """F1 and exact match of one answer."""
    return _best(bag_f1, prediction, example), _best(exact_match, prediction, example)


def apply_threshold(
    predictions: Mapping[str, str],
    no_answer_scores: Mapping[str, float] | None,
    threshold: float = 0.0,
) -> Mapping[str, str]:
    """Make the answers empty whose no-answer score lies above the threshold."""
    if no_answer_scores is None:
        return predictions
    return {
        id_: "" if no_answer_scores.get(id_, threshold) > threshold else text
        for id_, text in predictions.items()
    }


def best_threshold(
    scores: NDArray[np.float64], impossible: NDArray[np.bool_], denials: NDArray[np.float64]
) -> tuple[float, float]:
    """The threshold of the no-answer score with the best mean, and that mean.

    Args:
        scores: (Q,) of each question if its answer is kept.
        impossible: (Q,) whether the empty answer is right.
        denials: (Q,) no-answer scores; an answer is kept up to the threshold.

    Returns:
        The mean, and the lowest threshold that has it; one below every score keeps no answer.
    """
    order = np.argsort(denials, kind="stable")
    sorted_denials = denials[order]
    gains = (scores - impossible)[order]  # (Q,) of keeping the answer rather than dropping it
    totals = impossible.sum() + np.concatenate([[0.0], np.cumsum(gains)])  # (Q + 1,)
    last_of_equal = np.append(sorted_denials[1:] != sorted_denials[:-1], True)
    allowed = np.concatenate([[True], last_of_equal])
    best = int(np.argmax(np.where(allowed, totals, -np.inf)))
    threshold = sorted_denials[best - 1] if best else sorted_denials[0] - 1.0
    return float(totals[best] / len(scores)), float(threshold)


def normalised(text: str, language: str | None = None) -> str:
    """An answer as SQuAD compares it: lower case, no ASCII punctuation, no articles, one blank.

    Punctuation goes first, as in the official program: ``a.`` is an article, ``a-b`` is ``ab``.

    Args:
        text: the answer.
        language: if given, MLQA's rules for it (Lewis et al. 2020): no punctuation of any script,
            the articles of the language, each Chinese character a word.
    """
    if language is None:
        return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
    kept = "".join(c for c in text.lower().translate(_PUNCTUATION) if category(c)[0] != "P")
    if language in _ARTICLES_OF:
        kept = _ARTICLES_OF[language].sub(" ", kept)
    return " ".join((_CHINESE.sub(r" \1 ", kept) if language == "zh" else kept).split())


def exact_match(prediction: str, gold: str, language: str | None = None) -> float:
    """1 if both are the same once normalised, else 0."""
    return float(normalised(prediction, language) == normalised(gold, language))


def bag_f1(prediction: str, gold: str, language: str | None = None) -> float:
    """F1 of the two bags of normalised words; 1 or 0 where one of them is empty."""
    predicted = normalised(prediction, language).split()
    wanted = normalised(gold, language).split()
    if not predicted or not wanted:
        return float(predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted))


def _best(measure: Measure, prediction: str, example: SpanExample) -> float:
    """The best score against any accepted answer.

    Those are the answers that are not empty once normalised, else the empty one: an official rule.
    """
    golds = [gold for gold in example.answers if normalised(gold, example.language)] or [""]
    return max(measure(prediction, gold, example.language) for gold in golds)


def _scored(
    measure: Measure, answers: Mapping[str, str], examples: Sequence[SpanExample]
) -> NDArray[np.float64]:
    return np.array([_best(measure, answers[e.id], e) for e in examples])

"""Long contexts in windows, and from logits back to spans of the context's text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kdnas.evaluation.tasks.examples import SpanExample

NUM_BEST = 20
MAX_ANSWER_TOKENS = 30
_CHUNK = 512

Offset = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class SpanFeature:
    """One window of a context, after its question, as a model reads it.

    Attributes:
        example: position of the question among the examples.
        inputs: what the model takes, T values each (``input_ids``, ``attention_mask`` …).
        offsets: first and last-but-one character of each token in the context; None outside the
            context and for tokens that are nothing but blanks.
        null: position of the token that stands for "no answer here": the classifier's.
        start: first token of the answer, for training; ``null`` where the window does not hold the
            whole answer.
        end: its last token.
    """

    example: int
    inputs: Mapping[str, Sequence[int]]
    offsets: Sequence[Offset]
    null: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span that may be the answer.

    Attributes:
        text: as it stands in the context.
        start: its first character in the context.
        end: the character after it.
        score: sum of the logits of its first and last token.
    """

    text: str
    start: int
    end: int
    score: float


def make_features(
    examples: Sequence[SpanExample], tokenizer: Any, max_length: int, stride: int
) -> list[SpanFeature]:
    """Cut contexts into windows that overlap, each with its question before it.

    A question takes at most half of a window and is cut behind that. An answer in the overlap is
    an answer in both windows. Of several answers the first that lies in the context is trained on.

    Args:
        examples: questions with their contexts.
        tokenizer: a fast tokenizer of ``transformers``.
        max_length: tokens of a window, question and special tokens included.
        stride: tokens of the context that neighbouring windows share; never more than leaves half
            of the room for new ones.

    Returns:
        The windows in the order of the examples, without padding.

    Raises:
        ValueError: the tokenizer gives no offsets, or a window has no room for a context.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{type(tokenizer).__name__} gives no character offsets; use a fast one")
    room = max_length - int(tokenizer.num_special_tokens_to_add(pair=True))
    if room < 4 or stride < 0:
        raise ValueError(
            f"max_length {max_length} and stride {stride} leave no room for a context; give a "
            "longer max_length and a stride of 0 or more"
        )
    features: list[SpanFeature] = []
    for first in range(0, len(examples), _CHUNK):
        chunk = examples[first : first + _CHUNK]
        encoded = tokenizer(
            _shortened([example.question for example in chunk], tokenizer, room // 2),
            [example.context for example in chunk],
            truncation="only_second",
            max_length=max_length,
            stride=min(stride, room // 4),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = encoded.pop("overflow_to_sample_mapping")
        mapping = encoded.pop("offset_mapping")
        for row, owner in enumerate(owners):
            example = chunk[owner]
            offsets = _context_offsets(example.context, mapping[row], encoded.sequence_ids(row))
            inputs = {name: list(values[row]) for name, values in encoded.items()}
            null = _null_position(inputs["input_ids"], tokenizer)
            start, end = _answer_tokens(example, offsets) or (null, null)
            features.append(SpanFeature(first + owner, inputs, offsets, null, start, end))
    return features


def extract_answers(
    start_logits: Sequence[NDArray[Any]] | NDArray[Any],
    end_logits: Sequence[NDArray[Any]] | NDArray[Any],
    features: Sequence[SpanFeature],
    examples: Sequence[SpanExample],
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
) -> tuple[dict[str, str], dict[str, float]]:
    """The best span of each question, and how strongly the model denies that there is one.

    Args:
        start_logits: a row of at least T logits a feature; what follows the T tokens is padding.
        end_logits: the same for the last token.
        features: windows, as from :func:`make_features`.
        examples: the questions.
        max_answer_tokens: a longer span is no answer.

    Returns:
        id → text of the best span, empty only where a context has no text at all; and id → score of
        "no answer" less that of the best span. The former is the lowest over the windows: one that
        does not hold the answer says so, and is right (Devlin et al. 2019).

    Raises:
        ValueError: not as many rows as features, or logits that are not finite.
    """
    best = n_best_answers(start_logits, end_logits, features, examples, 1, max_answer_tokens)
    nulls = dict.fromkeys((example.id for example in examples), np.inf)
    for feature, starts, ends in zip(features, start_logits, end_logits, strict=True):
        id_ = examples[feature.example].id
        nulls[id_] = min(nulls[id_], float(starts[feature.null]) + float(ends[feature.null]))
    answers = {id_: found[0].text if found else "" for id_, found in best.items()}
    denials = {
        id_: nulls[id_] - found[0].score if found else float(np.inf) for id_, found in best.items()
    }
    return answers, denials


def n_best_answers(
    start_logits: Sequence[NDArray[Any]] | NDArray[Any],
    end_logits: Sequence[NDArray[Any]] | NDArray[Any],
    features: Sequence[SpanFeature],
    examples: Sequence[SpanExample],
    num_best: int = NUM_BEST,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
) -> dict[str, list[Candidate]]:
    """The best spans of each question over all its windows, best first.

    All spans inside the context are compared, not only those of the highest starts and ends. A
    span that lies in two windows counts once, with its better score.

    Raises:
        ValueError: not as many rows as features, or logits that are not finite.
    """
    if not len(start_logits) == len(end_logits) == len(features):
        raise ValueError(
            f"{len(start_logits)} and {len(end_logits)} rows of logits for {len(features)} features"
        )
    found: dict[int, dict[tuple[int, int], float]] = {}
    for feature, starts, ends in zip(features, start_logits, end_logits, strict=True):
        spans = found.setdefault(feature.example, {})
        for span, score in _window_spans(starts, ends, feature, num_best, max_answer_tokens):
            spans[span] = max(score, spans.get(span, -np.inf))
    answers = {}
    for number, example in enumerate(examples):
        ranked = sorted(found.get(number, {}).items(), key=lambda item: (-item[1], item[0]))
        answers[example.id] = [
            Candidate(example.context[start:end], start, end, score)
            for (start, end), score in ranked[:num_best]
        ]
    return answers


def _window_spans(
    starts: NDArray[Any],
    ends: NDArray[Any],
    feature: SpanFeature,
    num_best: int,
    max_answer_tokens: int,
) -> Iterator[tuple[tuple[int, int], float]]:
    """The best spans of one window: first character, the one after the last, score."""
    length = len(feature.offsets)
    inside = np.array([offset is not None for offset in feature.offsets])
    first = np.asarray(starts[:length], np.float64)
    last = np.asarray(ends[:length], np.float64)
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        raise ValueError("the logits of a window are not finite; the model has diverged")
    first, last = np.where(inside, first, -np.inf), np.where(inside, last, -np.inf)
    padded = np.concatenate([last, np.full(max_answer_tokens - 1, -np.inf)])
    # (T, L): the span of token t with l more tokens.
    scores = first[:, None] + sliding_window_view(padded, max_answer_tokens)
    flat = scores.ravel()
    count = min(num_best, flat.size)
    for place in np.argpartition(-flat, count - 1)[:count]:
        token, more = divmod(int(place), max_answer_tokens)
        begin, finish = feature.offsets[token], None
        if np.isfinite(flat[place]):
            finish = feature.offsets[token + more]
        if begin is not None and finish is not None:
            yield (begin[0], finish[1]), float(flat[place])


def _shortened(questions: Sequence[str], tokenizer: Any, limit: int) -> list[str]:
    """Questions without leading blanks, cut behind ``limit`` tokens."""
    bare = [question.lstrip() for question in questions]
    encoded = tokenizer(bare, add_special_tokens=False, return_offsets_mapping=True)
    return [
        text[: offsets[limit - 1][1]] if len(offsets) > limit else text
        for text, offsets in zip(bare, encoded["offset_mapping"], strict=True)
    ]


def _context_offsets(
    context: str, mapping: Sequence[tuple[int, int]], sequences: Sequence[int | None]
) -> list[Offset]:
    """Offsets of the context's tokens, without the blanks that some tokenizers count in."""
    offsets: list[Offset] = []
    for (start, end), sequence in zip(mapping, sequences, strict=True):
        while start < end and context[start : start + 1].isspace() and sequence == 1:
            start += 1
        while start < end and context[end - 1 : end].isspace() and sequence == 1:
            end -= 1
        offsets.append((start, end) if sequence == 1 and start < end else None)
    return offsets


def _answer_tokens(example: SpanExample, offsets: Sequence[Offset]) -> tuple[int, int] | None:
    """First and last token of the answer; None unless all of it lies in the window."""
    placed = zip(example.answers, example.starts, strict=True)
    answer, start = next(((text, at) for text, at in placed if at >= 0 and text), ("", 0))
    start += len(answer) - len(answer.lstrip())
    end = start + len(answer.strip())
    inside = [(n, offset) for n, offset in enumerate(offsets) if offset is not None]
    if start == end or not inside or start < inside[0][1][0] or end > inside[-1][1][1]:
        return None
    touched = [n for n, (first, last) in inside if first < end and last > start]
    return (touched[0], touched[-1]) if touched else None


def _null_position(input_ids: Sequence[int], tokenizer: Any) -> int:
    cls = tokenizer.cls_token_id
    return input_ids.index(cls) if cls in input_ids else 0

"""What was understood of a task's data, to be looked at before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kdnas.evaluation.tasks.examples import (
    Example,
    RetrievalExample,
    SpanExample,
    TaggedExample,
    TaskData,
    TextExample,
)

MOST_CHARACTERS: Final = 200
"""Of a text that is shown."""
NUM_SHOWN: Final = 3
"""Examples of each part."""
MOST_LABELS: Final = 30


def in_words(example: Example, passages: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write an example in a line.

    Args:
        example: of any kind.
        passages: name → text, of a retrieval.
    """
    if isinstance(example, TaggedExample):
        pairs = zip(example.tokens, example.tags, strict=True)
        return _short(" ".join(f"{word}/{tag}" for word, tag in pairs))
    if isinstance(example, SpanExample):
        answers = ", ".join(map(repr, example.answers)) or "no answer"
        return f"{_short(example.question)} | {_short(example.context)} | {_short(answers)}"
    if isinstance(example, RetrievalExample):
        best = max(example.grades, key=lambda name: example.grades[name])
        others = len(example.grades) - 1
        also = f" (and by {others} other{'' if others == 1 else 's'})" if others else ""
        return f"{_short(example.query)} | {_short(passages.get(best, best))}{also}"
    texts = [_short(text) for text in (example.text, example.pair) if text is not None]
    return " | ".join([*texts, ", ".join(example.classes) or "no label"])


def understood(data: TaskData) -> dict[str, Any]:
    """Say what was read of a task's data, as plain values.

    Returns:
        ``task``, ``kind``, ``metrics`` with the main one first, ``official_split``, ``files``
        (``source``, ``part``, ``examples``, ``about``), ``parts`` that are trained on and scored
        (``part``, ``examples``, ``labels``: each with its count; of spans their types, of a
        retrieval its grades and passages, of a regression the least and the greatest number;
        ``first``: some examples) and ``notes``.
    """
    task = data.task
    main = [task.main_metric, *(metric for metric in task.metrics if metric != task.main_metric)]
    parts = {**({"train": data.train} if task.fine_tuned else {}), **data.evaluations}
    return {
        "task": task.name,
        "kind": task.kind,
        "metrics": main,
        "official_split": data.official_split,
        "files": [
            {"source": r.source, "part": r.part, "examples": r.examples, "about": r.about}
            for r in data.readings
        ],
        "parts": [
            {
                "part": name,
                "examples": len(examples),
                "labels": _labels(data, examples),
                "first": [in_words(one, data.passages) for one in examples[:NUM_SHOWN]],
            }
            for name, examples in parts.items()
        ],
        "notes": list(data.notes),
    }


def _labels(data: TaskData, examples: Sequence[Example]) -> dict[str, float]:
    """Labels and how often there are; the most frequent ones first."""
    if data.task.kind == "regression":
        numbers = [
            e.label for e in examples if isinstance(e, TextExample) and isinstance(e.label, float)
        ]
        return {"least": min(numbers), "greatest": max(numbers)} if numbers else {}
    found = {"passages": len(data.passages)} if data.task.kind == "retrieval" else {}
    counts = Counter(label for example in examples for label in _labels_of(example))
    return {**found, **dict(counts.most_common(MOST_LABELS))}


def _labels_of(example: Example) -> Iterable[str]:
    if isinstance(example, TaggedExample):
        marked = any(tag.startswith("B-") for tag in example.tags)
        begun = (tag[2:] for tag in example.tags if tag.startswith("B-"))
        return begun if marked or set(example.tags) == {"O"} else example.tags
    if isinstance(example, RetrievalExample):
        return (f"answers of grade {grade:g}" for grade in example.grades.values())
    if isinstance(example, SpanExample):
        return ("no answer" if example.impossible else "answered",)
    return example.classes


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 2]} …"

"""Scores class by class, and which classes are taken for which, from files of predictions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from kdnas.evaluation.data.files.tag_schemes import is_span_scheme
from kdnas.evaluation.reports.formats import markdown_table

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClassScores:
    """How well one class, or spans of one type, are found.

    Attributes:
        label: the class, or the type.
        precision: share of what was said to be of it that is; 0 if nothing was.
        recall: share of what is of it that was said to be; 0 if nothing is.
        support: how many examples, or spans, are of it.
    """

    label: str
    precision: float
    recall: float
    support: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each class was said of examples of each.

    Attributes:
        labels: of rows and columns.
        counts: a row for each right class, a column for each said one.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ClassTable:
    """The classes of an evaluation set.

    Attributes:
        part: name of the set.
        classes: in the alphabet's order.
        confusion: None where an example has no one class.
    """

    part: str
    classes: tuple[ClassScores, ...]
    confusion: Confusion | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, shares as fractions."""
        return {
            "set": self.part,
            "classes": [{**asdict(one), "f1": one.f1} for one in self.classes],
            "confusion": self.confusion and asdict(self.confusion),
        }


def class_tables(files: Sequence[Path]) -> tuple[ClassTable, ...]:
    """Count class by class what a model said; of several seeds together.

    Precision and recall are of all that the seeds said; supports and confusions are sums over them.

    Args:
        files: of predictions on one task, one a seed.

    Returns:
        A table for each evaluation set; none of a task without classes.
    """
    by_part: dict[str, list[Line]] = {}
    for file in files:
        with file.open(encoding="utf-8") as stream:
            for line in map(json.loads, stream):
                by_part.setdefault(line["set"], []).append(line)
    tables = (_table(part, lines) for part, lines in by_part.items() if _has_classes(lines))
    return tuple(table for table in tables if table.classes)


def _has_classes(lines: Sequence[Line]) -> bool:
    """Numbers have none, nor have answers; what older files call the right answer is not known."""
    asked = {"question", "query"} & lines[0].keys()
    return not asked and isinstance(lines[0].get("gold"), str | list)


def _table(part: str, lines: Sequence[Line]) -> ClassTable:
    tags = {
        tag for line in lines if "words" in line for tag in (*line["prediction"], *line["gold"])
    }
    in_spans = is_span_scheme(tags)
    both: Counter[str] = Counter()
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for line in lines:
        predicted, wanted = (_things(line, line[key], in_spans) for key in ("prediction", "gold"))
        both.update(label for label, _ in predicted & wanted)
        said.update(label for label, _ in predicted)
        right.update(label for label, _ in wanted)
    classes = tuple(
        ClassScores(
            label,
            both[label] / said[label] if said[label] else 0.0,
            both[label] / right[label] if right[label] else 0.0,
            right[label],
        )
        for label in sorted(said | right)
    )
    return ClassTable(part, classes, _confusion(lines))


def _things(line: Line, answer: str | Sequence[str], in_spans: bool) -> set[tuple[str, Any]]:
    """What can be right or wrong by itself, by its class: the text, or a span, or a word."""
    if isinstance(answer, str):
        return {(answer, None)}
    if "words" not in line:
        return {(label, None) for label in answer}
    if not in_spans:
        return {(tag, place) for place, tag in enumerate(answer)}
    from seqeval.metrics.sequence_labeling import get_entities

    return {(kind, (start, end)) for kind, start, end in get_entities(list(answer))}


def _confusion(lines: Iterable[Line]) -> Confusion | None:
    pairs = Counter((line["gold"], line["prediction"]) for line in lines if _is_one(line))
    if not pairs:
        return None
    labels = tuple(sorted(set(chain.from_iterable(pairs))))
    return Confusion(labels, tuple(tuple(pairs[row, col] for col in labels) for row in labels))


def _is_one(line: Line) -> bool:
    return isinstance(line["gold"], str) and isinstance(line["prediction"], str)


def classes_as_markdown(task: str, seeds: Sequence[int], tables: Sequence[ClassTable]) -> str:
    """Write tables of a task for a document."""
    told = ", ".join(map(str, seeds))
    counted = f"seed {told}" if len(seeds) == 1 else f"seeds {told} together"
    parts = [f"## {task}, class by class", f"Precision, recall and F1 in per cent, {counted}."]
    for table in tables:
        parts += [f"### {table.part}", markdown_table(*_class_rows(table))]
        if table.confusion is not None:
            labels = table.confusion.labels
            rows = [
                [f"**{label}**", *map(str, counts)]
                for label, counts in zip(labels, table.confusion.counts, strict=True)
            ]
            parts += [
                "How often each class, a row, was taken for each, a column:",
                markdown_table(["", *labels], rows),
            ]
    return "\n\n".join(parts) + "\n"


def _class_rows(table: ClassTable) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            one.label,
            *(f"{100 * v:.1f}" for v in (one.precision, one.recall, one.f1)),
            f"{one.support}",
        ]
        for one in table.classes
    ]
    return ["class", "precision", "recall", "F1", "support"], rows

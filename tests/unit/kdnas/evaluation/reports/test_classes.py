"""Scores class by class, against scikit-learn and seqeval."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report as of_spans
from sklearn.metrics import classification_report, confusion_matrix

from kdnas.evaluation.reports.classes import (
    ClassTable,
    Confusion,
    class_tables,
    classes_as_markdown,
)
from kdnas.evaluation.reports.picture import draw_confusion

TAG = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
LABEL = st.sampled_from(["no", "yes", "why"])
SETS = st.lists(st.sampled_from("abc"), unique=True)


def tables(lines: Sequence[dict[str, Any]], times: int = 1) -> tuple[ClassTable, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.jsonl"
        path.write_text("".join(json.dumps({"set": "dev", **line}) + "\n" for line in lines))
        return class_tables([path] * times)


def check(table: ClassTable, expected: dict[str, Any]) -> None:
    for one in table.classes:
        wanted = expected[one.label]
        assert (one.precision, one.recall, one.f1, one.support) == pytest.approx(
            tuple(wanted[key] for key in ("precision", "recall", "f1-score", "support"))
        )
    averages = {"accuracy", "micro avg", "macro avg", "weighted avg", "samples avg"}
    assert {one.label for one in table.classes} == expected.keys() - averages


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=30))
def test_classes_are_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    said, right = map(list, zip(*pairs, strict=True))
    (table,) = tables([{"text": "", "prediction": p, "gold": g} for p, g in pairs])
    check(table, classification_report(right, said, output_dict=True, zero_division=0))
    assert table.confusion is not None
    labels = list(table.confusion.labels)
    if len(labels) > 1:  # scikit-learn warns of a single one
        assert (confusion_matrix(right, said, labels=labels) == table.confusion.counts).all()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=8), min_size=1, max_size=8))
def test_types_of_spans_are_those_of_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    said, right = ([[pair[i] for pair in one] for one in sentences] for i in (0, 1))
    found = tables(
        [
            {"words": [""] * len(p), "prediction": p, "gold": g}
            for p, g in zip(said, right, strict=True)
        ]
    )
    if not found:  # no span is said, and none is right
        assert {tag for one in (*said, *right) for tag in one} == {"O"}
        return
    check(found[0], of_spans(right, said, output_dict=True, zero_division=0))
    assert found[0].confusion is None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(SETS, SETS), min_size=1, max_size=20))
def test_each_of_several_labels_is_counted_by_itself(
    pairs: list[tuple[list[str], list[str]]],
) -> None:
    found = tables([{"text": "", "prediction": p, "gold": g} for p, g in pairs])
    for one in found[0].classes if found else ():
        said, right = ([one.label in sets for sets in part] for part in zip(*pairs, strict=True))
        report = classification_report(right, said, output_dict=True, zero_division=0)
        wanted = report.get("True", {"precision": 0, "recall": 0, "f1-score": 0, "support": 0})
        assert (one.precision, one.recall, one.f1, one.support) == pytest.approx(
            tuple(wanted[key] for key in ("precision", "recall", "f1-score", "support"))
        )


def test_tags_of_words_are_counted_word_by_word() -> None:
    line = {"words": ["a", "b"], "prediction": ["NOUN", "NOUN"], "gold": ["NOUN", "VERB"]}
    (table,) = tables([line])
    assert [(one.label, one.precision, one.support) for one in table.classes] == [
        ("NOUN", 0.5, 1),
        ("VERB", 0.0, 1),
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"text": "", "prediction": 1.5, "gold": 2.0},
        {"question": "", "context": "", "prediction": "a", "gold": ["a"]},
        {"prediction": "yes", "reference": "yes"},  # an older file
    ],
)
def test_what_has_no_classes_has_no_table(line: dict[str, Any]) -> None:
    assert tables([line]) == ()


def test_seeds_are_counted_together_and_written_down() -> None:
    lines = [{"text": "", "prediction": "yes", "gold": gold} for gold in ("yes", "no|p")]
    found = tables(lines, times=2)
    assert classes_as_markdown("Mine", [0, 1], found) == (
        "## Mine, class by class\n\n"
        "Precision, recall and F1 in per cent, seeds 0, 1 together.\n\n"
        "### dev\n\n"
        "| class | precision | recall | F1 | support |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| no\\|p | 0.0 | 0.0 | 0.0 | 2 |\n"
        "| yes | 50.0 | 100.0 | 66.7 | 2 |\n\n"
        "How often each class, a row, was taken for each, a column:\n\n"
        "|  | no\\|p | yes |\n"
        "| --- | --- | --- |\n"
        "| **no\\|p** | 0 | 2 |\n"
        "| **yes** | 0 | 2 |\n"
    )


@pytest.mark.parametrize("size", [2, 30])
def test_a_picture_is_drawn(size: int) -> None:
    labels = tuple(f"$\\frac$ 中 {n}" for n in range(size))
    counts = tuple(tuple(row * column for column in range(size)) for row in range(size))
    assert draw_confusion(Confusion(labels, counts), "Mine, dev").startswith(b"\x89PNG")

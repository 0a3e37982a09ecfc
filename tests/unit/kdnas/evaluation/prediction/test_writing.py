"""Answers as files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kdnas.errors import RequestError
from kdnas.evaluation.prediction.inputs import Source, read_examples
from kdnas.evaluation.prediction.predictor import Answer
from kdnas.evaluation.prediction.writing import writer_for
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TextExample

LABELS = [
    Answer(TextExample("7", 'one, "two"', None, None), "yes", 0.75, {"yes": 0.75, "no": 0.25}),
    Answer(TextExample("9", "tab\tand\nend", None, None), "no", 0.6, {"no": 0.6, "yes": 0.4}),
]
TAGS = [
    Answer(TaggedExample("1", ("Rome", "!"), ("O", "O")), ("B-place", "O")),
    Answer(TaggedExample("2", ("yes",), ("O",)), ("O",)),
]
SPANS = [Answer(SpanExample("q1", "who?", "Eve sat.", (), (), impossible=False), "")]


def written(answers: list[Answer], name: str) -> str:
    stream = io.StringIO()
    assert writer_for(Path(name))(iter(answers), stream) == len(answers)
    return stream.getvalue()


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.TSV", "\t")])
def test_a_table_has_a_header_and_what_was_asked(name: str, delimiter: str) -> None:
    text = written(LABELS, name)
    quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    first, second = csv.DictReader(io.StringIO(text), delimiter=delimiter, quoting=quoting)
    assert first == {
        "id": "7",
        "text": 'one, "two"',
        "prediction": "yes",
        "probability": "0.75",
        "probability_of_no": "0.25",
        "probability_of_yes": "0.75",
    }
    assert second["text"] == ("tab\tand\nend" if delimiter == "," else "tab and end")
    assert (second["prediction"], second["probability_of_yes"]) == ("no", "0.4")


def test_a_table_can_be_asked_again() -> None:
    source = Source("classification", "csv")
    again = list(read_examples(source, io.StringIO(written(LABELS, "a.csv")), "a.csv"))
    assert again == [answer.example for answer in LABELS]


def test_tags_are_a_row_a_word_and_spans_have_their_contexts() -> None:
    assert written(TAGS, "a.csv").splitlines() == [
        "id,word,prediction",
        *("1,Rome,B-place", "1,!,O", "2,yes,O"),
    ]
    assert written(SPANS, "a.tsv").splitlines() == [
        "id\tquestion\tcontext\tprediction",
        "q1\twho?\tEve sat.\t",
    ]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson"])
def test_json_is_a_list_and_json_lines_are_lines(name: str) -> None:
    text = written(TAGS, name)
    found = json.loads(text) if name == "a.json" else [*map(json.loads, text.splitlines())]
    assert found == [
        {"id": "1", "words": ["Rome", "!"], "prediction": ["B-place", "O"]},
        {"id": "2", "words": ["yes"], "prediction": ["O"]},
    ]


@pytest.mark.parametrize("name", ["a", "a.txt", "a.conll"])
def test_other_files_are_for_people(name: str) -> None:
    assert written(TAGS, name) == "Rome\tB-place\n!\tO\n\nyes\tO\n\n"


@pytest.mark.parametrize(
    ("name", "empty"), [("a.csv", ""), ("a.json", "[]\n"), ("a.jsonl", ""), ("a.txt", "")]
)
def test_no_answers_are_an_empty_file(name: str, empty: str) -> None:
    assert written([], name) == empty


def test_what_is_not_written_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown file ending '\.xlsx'"):
        writer_for(Path("answers.xlsx"))

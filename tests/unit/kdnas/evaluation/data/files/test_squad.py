from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.squad import read_squad, span_example

CONTEXT = "\ufeffNormandy is in France. France is old."


def written(path: Path, *questions: dict[str, Any]) -> Path:
    paragraph = {"context": CONTEXT, "qas": list(questions)}
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": [paragraph]}]}))
    return path


def test_questions_with_several_answers_and_with_none(tmp_path: Path) -> None:
    path = written(
        tmp_path / "dev.json",
        {
            "id": 7,
            "question": "Where?",
            "answers": [
                {"text": "France", "answer_start": 16},
                {"text": "in France", "answer_start": 13},
            ],
            "is_impossible": False,
        },
        {
            "id": "8",
            "question": "Why?",
            "answers": [],
            "plausible_answers": [{"text": "old", "answer_start": 34}],
            "is_impossible": True,
        },
    )
    first, second = read_squad(path) or []
    assert (first.id, first.answers, first.starts) == ("7", ("France", "in France"), (16, 13))
    assert (second.id, second.answers, second.impossible) == ("8", (), True)
    assert first.context == CONTEXT


def test_an_answer_that_lies_elsewhere_is_looked_for() -> None:
    moved = span_example("1", "?", CONTEXT, [("France", 19)], False)
    assert moved.starts == (16,)
    assert span_example("1", "?", CONTEXT, [("France", 22)], False).starts == (24,)
    gone = span_example("1", "?", CONTEXT, [("Spain", 3), ("", 0)], False)
    assert (gone.answers, gone.starts) == (("Spain", ""), (-1, -1))


def test_an_answer_that_begins_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    question = {"id": "1", "question": "?", "answers": [{"text": "old", "answer_start": 34}]}
    path.write_text(written(path, question).read_text().replace("34", "1e999"))
    with pytest.raises(TaskDataError, match="is not in the layout of SQuAD"):
        read_squad(path)


def test_ids_that_come_again_are_numbered(tmp_path: Path) -> None:
    answers = [{"text": "old", "answer_start": 34}]
    questions = [{"id": "12", "question": q, "answers": answers} for q in ("a", "b", "c")]
    found = read_squad(written(tmp_path / "train.json", *questions)) or []
    assert [(e.id, e.question) for e in found] == [("12", "a"), ("12#1", "b"), ("12#2", "c")]


def test_a_test_part_has_no_answers(tmp_path: Path) -> None:
    path = written(tmp_path / "test.json", {"id": "1", "question": "Where?", "answers": []})
    assert read_squad(path) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not in the layout of SQuAD"),
        (
            '{"data": [{"paragraphs": [{"context": "x"}]}]}',
            "not in the layout of SQuAD .there is no 'qas'",
        ),
        ('{"data": []}', "holds no question"),
    ],
)
def test_what_is_no_squad_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "dev.json").write_text(content)
    with pytest.raises(TaskDataError, match=message):
        read_squad(tmp_path / "dev.json")


def test_blank_text_is_no_answer(tmp_path: Path) -> None:
    blank, old = {"text": " ", "answer_start": 0}, {"text": "old", "answer_start": 34}
    path = written(
        tmp_path / "dev.json",
        {"id": "1", "question": "a", "answers": [blank]},
        {"id": "2", "question": "b", "answers": [blank, old], "is_impossible": False},
    )
    first, second = read_squad(path) or []
    assert (first.answers, first.impossible) == ((), True)
    assert (second.answers, second.starts, second.impossible) == (("old",), (34,), False)


def test_a_question_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    old = {"text": "old", "answer_start": 34}
    path = written(
        tmp_path / "dev.json",
        {"id": "1", "question": "a", "answers": [old], "is_impossible": False},
        {"id": "2", "question": "b", "answers": [], "is_impossible": False},
    )
    with pytest.raises(TaskDataError) as caught:
        read_squad(path)
    assert "1 of 2 questions, such as '2', neither an answer nor that there is none" in (
        str(caught.value)
    )

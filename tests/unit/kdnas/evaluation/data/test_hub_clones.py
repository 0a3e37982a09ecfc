"""Benchmarks as repositories of the hub keep them, cloned: Parquet files with names of classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TextExample
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.testing.task_files import counts, is_whole

GLUE = {
    "CoLA": ("cola", ["sentence"], ["unacceptable", "acceptable"]),
    "SST-2": ("sst2", ["sentence"], ["negative", "positive"]),
    "MRPC": ("mrpc", ["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "QQP": ("qqp", ["question1", "question2"], ["not_duplicate", "duplicate"]),
    "QNLI": ("qnli", ["question", "sentence"], ["entailment", "not_entailment"]),
    "RTE": ("rte", ["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "WNLI": ("wnli", ["sentence1", "sentence2"], ["not_entailment", "entailment"]),
}


def put(folder: Path, columns: dict[str, Any], features: Features, *parts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        data = Dataset.from_dict(columns, features=features)
        data.to_parquet(folder / f"{part}-00000-of-00001.parquet")


@pytest.mark.parametrize("name", GLUE)
def test_glue(tmp_path: Path, name: str) -> None:
    config, texts, names = GLUE[name]
    features = Features(
        {text: Value("string") for text in texts}
        | {"label": ClassLabel(names=names), "idx": Value("int32")}
    )
    columns = {text: [f"{text} {n}" for n in range(4)] for text in texts} | {"idx": range(4)}
    put(tmp_path / config, columns | {"label": [0, 1] * 2}, features, "train", "validation")
    put(tmp_path / config, columns | {"label": [-1] * 4}, features, "test")
    data = load_task(TASKS[name.lower()], tmp_path)
    assert counts(data) == (4, {"dev": 4})
    assert is_whole(data)
    assert [e.label for e in data.train if isinstance(e, TextExample)] == names * 2


def test_mnli_and_stsb(tmp_path: Path) -> None:
    names = ["entailment", "neutral", "contradiction"]
    features = Features(
        premise=Value("string"), hypothesis=Value("string"), label=ClassLabel(names=names)
    )
    columns = {"premise": ["a"] * 3, "hypothesis": ["b"] * 3, "label": [0, 1, 2]}
    put(tmp_path / "mnli", columns, features, "train", "validation_matched")
    put(tmp_path / "mnli", columns, features, "validation_mismatched")
    put(tmp_path / "mnli", columns | {"label": [-1] * 3}, features, "test_matched")
    assert counts(load_task(TASKS["mnli"], tmp_path)) == (3, {"matched": 3, "mismatched": 3})
    features = Features(
        sentence1=Value("string"), sentence2=Value("string"), label=Value("float32")
    )
    columns = {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [0.5, 4.0]}
    put(tmp_path / "stsb", columns, features, "train", "validation")
    assert counts(load_task(TASKS["sts-b"], tmp_path)) == (2, {"dev": 2})


def test_xnli_has_a_folder_for_each_language(tmp_path: Path) -> None:
    names = ["entailment", "neutral", "contradiction"]
    features = Features(
        premise=Value("string"), hypothesis=Value("string"), label=ClassLabel(names=names)
    )
    columns = {"premise": ["a"] * 3, "hypothesis": ["b"] * 3, "label": [0, 1, 2]}
    for language in ("de", "en"):
        put(tmp_path / language, columns, features, "train", "validation", "test")
    assert counts(load_task(TASKS["xnli"], tmp_path)) == (3, {"de": 3, "en": 3})


def test_words_and_tags_of_wikiann(tmp_path: Path) -> None:
    names = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
    features = Features(tokens=List(Value("string")), ner_tags=List(ClassLabel(names=names)))
    columns = {"tokens": [["Ada", "Rome"]] * 3, "ner_tags": [[1, 5]] * 3}
    put(tmp_path / "data", columns, features, "train", "validation", "test")
    data = load_task(TASKS["ner"], tmp_path)
    assert counts(data) == (3, {"test": 3})
    assert isinstance(data.train[0], TaggedExample)
    assert data.train[0].tags == ("B-PER", "B-LOC")
    with pytest.raises(TaskDataError, match="not the train part of PAN-X as published: no lang"):
        load_task(TASKS["pan-x"], tmp_path)


def answered(number: int, text: str = "stone") -> dict[str, Any]:
    answers = {"text": [text], "answer_start": [2]} if text else {"text": [], "answer_start": []}
    return {"id": str(number), "title": "t", "context": "a stone lies", "question": "what?"} | {
        "answers": answers
    }


def test_squad(tmp_path: Path) -> None:
    for part, number in (("train", 3), ("validation", 2)):
        where = tmp_path / "squad" / "plain_text" / f"{part}-00000-of-00001.parquet"
        where.parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_list([answered(n) for n in range(number)]).to_parquet(where)
        lines = [json.dumps(answered(n, "" if n else "stone")) for n in range(number)]
        two = tmp_path / "squad_v2" / f"{part}.jsonl"
        two.parent.mkdir(exist_ok=True)
        two.write_text("\n".join(lines), "utf-8")
    data = load_task(TASKS["squad 1.1"], tmp_path)
    assert counts(data) == (3, {"dev": 2})
    assert isinstance(data.train[0], SpanExample)
    assert (data.train[0].answers, data.train[0].starts) == (("stone",), (2,))
    data = load_task(TASKS["squad 2.0"], tmp_path)
    assert [one.impossible for one in data.train if isinstance(one, SpanExample)] == [0, 1, 1]


def test_languages_of_mlqa_without_what_was_translated(tmp_path: Path) -> None:
    folders = ("mlqa.de.de", "mlqa.en.en", "mlqa.en.de", "mlqa-translate-test.de")
    for folder in folders:
        for part, number in (("test", 4), ("validation", 2)):
            where = tmp_path / folder / f"{part}-00000-of-00001.parquet"
            where.parent.mkdir(exist_ok=True)
            rows = [answered(n) | {"title": folder} for n in range(number)]
            Dataset.from_list(rows).to_parquet(where)
    data = load_task(TASKS["mlqa"], tmp_path)
    assert set(data.evaluations) == {"de", "en"}
    assert all("mlqa.de.de" in one or "mlqa.en.en" in one for one in data.sources)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "1", "question": "q", "context": "c"}, r"line 2 .*\(there is no 'answers'\)"),
        (answered(1) | {"answers": 3}, r"line 2 is not in the layout of SQuAD on the hub"),
        (answered(1) | {"answers": {"text": ["a"], "answer_start": []}}, "line 2 is not in the"),
    ],
)
def test_rows_of_another_layout_are_refused(tmp_path: Path, row: object, said: str) -> None:
    lines = f"{json.dumps(answered(0))}\n{json.dumps(row)}\n"
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text(lines, "utf-8")
    with pytest.raises(TaskDataError, match=said):
        load_task(TASKS["squad 1.1"], tmp_path)

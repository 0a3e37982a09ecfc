"""Words and tags: benchmarks in their official files, and files of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data import recognising
from kdnas.evaluation.data.loading import available_tasks, load_task
from kdnas.evaluation.tasks.examples import (
    TaggedExample,
)
from kdnas.evaluation.tasks.registry import TASKS, own_task
from kdnas.testing.task_files import counts, file


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of a few sentences be those of a benchmark; what it takes has tests of its own."""
    monkeypatch.setattr(recognising, "PUBLISHED", {})


CONLL = ("-DOCSTART- -X- O O", "", "EU NNP I-NP I-ORG", "rejects VBZ I-VP O", "")


@pytest.mark.usefixtures("any_size")
def test_conll_in_its_official_files(tmp_path: Path) -> None:
    for name in ("eng.train", "eng.testa", "eng.testb"):
        file(tmp_path / "CoNLL-2003" / name, *CONLL)
    data = load_task(TASKS["conll-2003"], tmp_path)
    assert counts(data) == (1, {"test": 1})
    assert data.labels == ("O", "B-ORG")
    assert [Path(source).name for source in data.sources] == ["eng.train", "eng.testb"]


@pytest.mark.usefixtures("any_size")
def test_wnut_in_its_official_files(tmp_path: Path) -> None:
    for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"):
        file(tmp_path / "wnut17" / name, "a\tB-creative-work", "b\tI-creative-work", "\t", "c\tO")
    data = load_task(TASKS["wnut-17"], tmp_path)
    assert counts(data) == (2, {"test": 2})
    assert data.labels == ("O", "B-creative-work", "I-creative-work")


@pytest.mark.usefixtures("any_size")
def test_panx_is_trained_on_english_and_scored_in_all(tmp_path: Path) -> None:
    for language in ("sw", "en"):
        for part in ("train", "dev"):
            file(tmp_path / "panx" / f"{part}-{language}.tsv", f"{language}\tB-LOC", "", "x\tO")
    data = load_task(TASKS["pan-x"], tmp_path)
    assert counts(data) == (2, {"en": 2, "sw": 2})
    assert data.notes == ("scored on the dev part: no test part has labels",)
    for part in ("train", "dev", "test"):
        file(tmp_path / "wikiann" / "sw" / part, "sw:a\tB-LOC", "", "sw:b\tO")
    data = load_task(TASKS["pan-x"], tmp_path / "wikiann")
    assert counts(data) == (2, {"sw": 2})
    assert data.notes == ("no training part in en: sw taken",)


def test_tags_of_words_are_refused_before_anything_is_learned(tmp_path: Path) -> None:
    for name in ("train.conll", "test.conll"):
        file(tmp_path / name, "EU\tNNP", "rejects\tVBZ")
    with pytest.raises(
        TaskDataError, match=r"'NNP' \(.*train\.conll, line 1, …\), mark no spans with B"
    ):
        load_task(TASKS["ner"], tmp_path)
    by_word = own_task("speech", "tagging", metrics=("accuracy",))
    assert load_task(by_word, tmp_path).labels == ("NNP", "VBZ")


def test_parts_with_other_columns_are_refused(tmp_path: Path) -> None:
    file(tmp_path / "train.conll", "EU B-ORG", "rejects O")
    file(tmp_path / "test.conll", "EU NNP B-ORG", "rejects VBZ O")
    with pytest.raises(TaskDataError) as caught:
        load_task(TASKS["ner"], tmp_path)
    assert "train.conll has words in column 1 and tags in column 2" in str(caught.value)
    assert "test.conll in 1 and 3; name them as `columns.word` and `columns.tag`" in (
        str(caught.value)
    )


def test_tags_without_marks_are_spans_in_lists_too(tmp_path: Path) -> None:
    rows = [
        {"words": ["New", "York", "is"], "tags": ["LOC", "LOC", "O"]},
        {"words": ["so"], "tags": ["O"]},
    ]
    for part in ("train", "test"):
        file(tmp_path / f"{part}.jsonl", *(json.dumps(row) for row in rows))
    data = load_task(own_task("mine", "tagging", text="words", label="tags"), tmp_path)
    assert [e.tags for e in data.train if isinstance(e, TaggedExample)] == [
        ("B-LOC", "I-LOC", "O"),
        ("O",),
    ]
    assert data.labels == ("O", "B-LOC", "I-LOC")


def test_a_folder_of_columns_is_a_task_whatever_its_tags(tmp_path: Path) -> None:
    file(
        tmp_path / "wnut17" / "train.conll", "a B-drug", "", "b O", "", "c O", "", "d O", "", "e O"
    )
    data = load_task(TASKS["ner"], tmp_path / "wnut17")
    assert counts(data) == (4, {"dev": 1})
    assert [t.name for t in available_tasks([TASKS["ner"], TASKS["wnut-17"]], tmp_path)] == [
        "WNUT-17"
    ]
    assert available_tasks([TASKS["ner"]], tmp_path / "wnut17") == [TASKS["ner"]]
    with pytest.raises(TaskDataError, match=r"no data of RTE .*no data of WNLI"):
        available_tasks([TASKS["rte"], TASKS["wnli"]], tmp_path)


def test_a_users_own_tagging(tmp_path: Path) -> None:
    task = own_task("drugs", "tagging", text="words", label="tags")
    rows: list[dict[str, Any]] = [
        {"words": [f"w{n}", "x"], "tags": ["I-DRUG", "O"]} for n in range(5)
    ]
    data = load_task(task, file(tmp_path / "all.jsonl", *map(json.dumps, rows)))
    assert counts(data) == (4, {"dev": 1})
    assert data.labels == ("O", "B-DRUG")
    torn = file(tmp_path / "torn.jsonl", json.dumps({"words": ["a", "b"], "tags": ["O"]}))
    with pytest.raises(TaskDataError, match=r"line 1 has 2 words and 1 tags"):
        load_task(task, torn)
    flat = file(tmp_path / "flat.jsonl", json.dumps({"words": "a b", "tags": ["O", "O"]}))
    with pytest.raises(TaskDataError, match=r"holds a str instead of a list of words"):
        load_task(task, flat)


def test_tags_that_mark_no_spans_want_accuracy(tmp_path: Path) -> None:
    rows = [json.dumps({"text": [f"w{n}"], "label": ["NOUN"]}) for n in range(10)]
    path = file(tmp_path / "all.jsonl", *rows)
    with pytest.raises(
        TaskDataError, match=r"'NOUN' \(.*, line \d+, …\), mark no .* `own\.metrics: accuracy`"
    ):
        load_task(own_task("mine", "tagging"), path)
    data = load_task(own_task("mine", "tagging", metrics=("accuracy",)), path)
    assert data.labels == ("NOUN",)


@pytest.mark.usefixtures("any_size")
def test_the_part_for_tuning_is_in_the_language_of_training(tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        for language in ("en", "de"):
            words = [f"{part}{language}{n}\tB-PER\n" for n in range(3)]
            file(tmp_path / "panx" / f"{part}-{language}.tsv", *words)
    data = load_task(TASKS["pan-x"], tmp_path)
    assert list(data.evaluations) == ["en", "de"]
    assert [e.tokens for e in data.tuning if isinstance(e, TaggedExample)] == [
        (f"deven{n}",) for n in range(3)
    ]


def test_a_type_that_only_the_scored_part_has_is_told(tmp_path: Path) -> None:
    file(tmp_path / "train.conll", "Anna B-PER", "came O", "", "Bo B-PER")
    file(tmp_path / "test.conll", "Anna B-PERSON", "came O", "", "Bo B-PER")
    (note,) = load_task(TASKS["ner"], tmp_path).notes
    assert note.startswith("1 of 2 scored examples have a type of span that no training example")

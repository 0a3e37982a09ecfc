from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TextExample
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.evaluation.tasks.task import HubSource, Task
from kdnas.testing.task_files import is_whole, told


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def repository(folder: Path, parts: dict[tuple[str, str], Any], *, converted: bool = False) -> Path:
    """A local copy of a repository of the hub: Parquet files, and the card that lists them."""
    configs: dict[str, list[str]] = {}
    for (config, split), data in parts.items():
        where = folder / config / split / "0000.parquet"
        if not converted:
            where = folder / config / f"{split}-00000-of-00001.parquet"
            configs.setdefault(config, []).append(
                f"  - split: {split}\n    path: {config}/{split}-*"
            )
        where.parent.mkdir(parents=True, exist_ok=True)
        data.to_parquet(where)
    if configs:
        listed = [
            f"- config_name: {name}\n  data_files:\n" + "\n".join(lines)
            for name, lines in configs.items()
        ]
        card = "---\nconfigs:\n" + "\n".join(listed) + "\n---\n"
        (folder / "README.md").write_text(card)
    return folder


def at(task: Task, folder: Path) -> Task:
    """The task with the local copy in the place of its repository."""
    assert isinstance(task.hub, HubSource)
    return replace(task, hub=replace(task.hub, path=str(folder)))


def test_glue_from_the_hub(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features(
        premise=Value("string"),
        hypothesis=Value("string"),
        label=ClassLabel(names=["entailment", "neutral", "contradiction"]),
        idx=Value("int32"),
    )

    def rows(labels: list[int]) -> Dataset:
        number = len(labels)
        columns = {"premise": ["a"] * number, "hypothesis": ["b"] * number, "label": labels}
        return Dataset.from_dict({**columns, "idx": range(number)}, features)

    splits = {"train": [2, 0, 1], "validation_matched": [1], "validation_mismatched": [0, -1]}
    parts = {("mnli", split): rows(labels) for split, labels in splits.items()}
    data = load_task(at(TASKS["mnli"], repository(tmp_path / "glue", parts)), None)
    assert [e.label for e in data.train if isinstance(e, TextExample)] == [
        "contradiction",
        "entailment",
        "neutral",
    ]
    assert list(data.evaluations) == ["matched", "mismatched"]
    assert len(data.evaluations["mismatched"]) == 1
    assert is_whole(data)
    (note,) = told(data.notes)
    assert "1 row of" in note


def test_sentence_pairs_with_a_score(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [3.5]})
    parts = {("stsb", split): rows for split in ("train", "validation")}
    data = load_task(at(TASKS["sts-b"], repository(tmp_path / "glue", parts)), None)
    assert data.train == [TextExample("1", "a", "b", 3.5)]


def test_questions_without_answer(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = Dataset.from_dict(
        {
            "id": ["1", "2"],
            "title": ["t", "t"],
            "context": ["cat sat", "cat sat"],
            "question": ["who?", "why?"],
            "answers": [
                {"text": ["cat"], "answer_start": [0]},
                {"text": [], "answer_start": []},
            ],
        }
    )
    parts = {("squad_v2", split): rows for split in ("train", "validation")}
    data = load_task(at(TASKS["squad 2.0"], repository(tmp_path / "squad_v2", parts)), None)
    assert data.train[0] == SpanExample("1", "who?", "cat sat", ("cat",), (0,), False)
    assert data.evaluations["dev"][1] == SpanExample("2", "why?", "cat sat", (), (), True)


def test_tags_from_the_hubs_own_conversion(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features(
        tokens=List(Value("string")), ner_tags=List(ClassLabel(names=["O", "B-PER", "I-PER"]))
    )
    rows = Dataset.from_dict({"tokens": [["Eve", "sat"]], "ner_tags": [[1, 0]]}, features)
    parts = {("conll2003", split): rows for split in ("train", "test")}
    folder = repository(tmp_path / "conll", parts, converted=True)
    data = load_task(at(TASKS["conll-2003"], folder), None)
    assert data.train == [TaggedExample("1", ("Eve", "sat"), ("B-PER", "O"))]
    assert list(data.evaluations) == ["test"]
    assert data.notes == ()
    assert data.labels == ("O", "B-PER")


def test_tydiqa_is_scored_in_each_language(tmp_path: Path) -> None:
    from datasets import Dataset

    ids = ["swahili-1", "english-2", "swahili-3"]
    answers = [{"text": ["cat"], "answer_start": [0]}] * 3
    columns = {"id": ids, "question": ["?"] * 3, "context": ["cat"] * 3, "answers": answers}
    rows = Dataset.from_dict(columns)
    parts = {("secondary_task", split): rows for split in ("train", "validation")}
    data = load_task(at(TASKS["tydiqa-goldp"], repository(tmp_path / "tydiqa", parts)), None)
    assert {name: len(part) for name, part in data.evaluations.items()} == {"sw": 2, "en": 1}
    assert len(data.train) == 3


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = Dataset.from_dict({"text": ["a"], "label": [1]})
    parts = {("sst2", split): rows for split in ("train", "validation")}
    with pytest.raises(TaskDataError, match=r"has no column 'sentence'; it has text, label"):
        load_task(at(TASKS["sst-2"], repository(tmp_path / "glue", parts)), None)


def test_a_hub_out_of_reach_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the Hub\nlong story")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    for task, name in (("sst-2", "nyu-mll/glue"), ("pan-x", "unimelb-nlp/wikiann")):
        with pytest.raises(
            TaskDataError,
            match=rf"cannot load {name}.* from the hub: Couldn't reach the Hub; check",
        ) as caught:
            load_task(TASKS[task], None)
        assert "\n" not in str(caught.value)


def test_what_is_fetched_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def stop(*args: object, **options: object) -> None:
        asked.append((args, options))
        raise ConnectionError("stop")

    monkeypatch.setattr("datasets.load_dataset", stop)
    for task in ("sst-2", "wnut-17"):
        with pytest.raises(TaskDataError, match="stop"):
            load_task(TASKS[task], None)
    (name, config), options = asked[0]
    assert (name, config, options["split"]) == ("nyu-mll/glue", "sst2", "validation")
    assert len(str(options["revision"])) == 40
    assert asked[1][1]["data_files"] == (
        "hf://datasets/leondz/wnut_17@1ac0b6d18c8a1a1d1606b24bef78b8af2f92d2d9"
        "/wnut_17/test/*.parquet"
    )

"""A benchmark's name goes only to files that are what was published under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.finding import Found
from kdnas.evaluation.data.loading import available_tasks, load_task
from kdnas.evaluation.data.recognising import PUBLISHED, is_named
from kdnas.evaluation.tasks.registry import SUITES, TASKS, find_task

NER = [find_task(name) for name in SUITES["ner"]]


def part(task: str, name: str, language: str | None = None) -> str:
    """A file with as many sentences, words and types as were published, and nothing to learn."""
    known = PUBLISHED[task]
    size = known.sizes[name, language]
    words = size.words or size.sentences
    types = sorted(known.types)
    lines = []
    for number in range(size.sentences):
        many = words // size.sentences + (number < words % size.sentences)
        lines += [f"w\tB-{types[number % len(types)]}", *["w\tO"] * (many - 1), ""]
    return "\n".join(lines)


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("task", ["CoNLL-2003", "WNUT-17"])
def test_what_was_published_is_known_in_any_folder(tmp_path: Path, task: str) -> None:
    parts = {f"{name}.conll": part(task, name) for name in ("train", "dev", "test")}
    folder = written(tmp_path / "mine", parts)
    data = load_task(find_task(task), folder)
    assert data.official_split
    assert len(data.train) == PUBLISHED[task].sizes["train", None].sentences
    other = next(name for name in ("CoNLL-2003", "WNUT-17") if name != task)
    with pytest.raises(TaskDataError, match=f"not the train part of {other} as published"):
        load_task(find_task(other), folder)


def test_panx_is_known_by_its_languages(tmp_path: Path) -> None:
    names = ("train", "dev", "test")
    parts = {f"{name}-sw.tsv": part("PAN-X", name, "sw") for name in names}
    folder = written(tmp_path / "any", parts)
    assert load_task(TASKS["pan-x"], folder).official_split
    written(tmp_path / "cut", {"test-sw.tsv": "a\tB-LOC\n", **{"train-sw.tsv": "a\tB-PER\n"}})
    with pytest.raises(TaskDataError) as caught:
        load_task(TASKS["pan-x"], tmp_path / "cut")
    assert str(caught.value).endswith(
        "train-sw.tsv is not the train part of PAN-X as published: its sentences number 1 instead "
        "of 1000; evaluate it as NER, with `suite: ner`, `tasks: NER` and "
        f"`data_dir: {tmp_path / 'cut'}`"
    )
    written(tmp_path / "plain", {"train.tsv": "a\tB-PER\n"})
    with pytest.raises(TaskDataError, match="no language that it has is in the name"):
        load_task(TASKS["pan-x"], tmp_path / "plain")


def test_other_types_are_another_data_set(tmp_path: Path) -> None:
    text = part("WNUT-17", "train").replace("B-person", "B-drug")
    folder = written(tmp_path / "wnut17", {"train.conll": text})
    with pytest.raises(TaskDataError, match="spans of corporation, creative-work, drug, group"):
        load_task(TASKS["wnut-17"], folder)


MINE = {f"{name}.conll": "a\tB-drug\nb\tO\n" for name in ("train", "dev", "test")}


def test_columns_of_ones_own_are_ner_and_nothing_else(tmp_path: Path) -> None:
    folder = written(tmp_path / "mine", MINE)
    assert [task.name for task in available_tasks(NER, folder)] == ["NER"]
    assert len(load_task(TASKS["ner"], folder).train) == 1


@pytest.mark.parametrize(
    ("path", "task", "is_so"),
    [
        ("wnut17/train.conll", "WNUT-17", True),
        ("WNUT_17/files/emerging.dev.conll", "WNUT-17", True),
        ("mine/wnut17train.conll", "WNUT-17", True),
        ("mine/train.conll", "WNUT-17", False),
        ("mine/eng.testa", "CoNLL-2003", True),
        ("conll2003/valid.txt", "CoNLL-2003", True),
        ("wikiann/sw/train", "PAN-X", True),
        ("conll/a/b/c/train.txt", "CoNLL-2003", False),
        ("mine/train.conll", "NER", True),
    ],
)
def test_names_alone_may_say_it(tmp_path: Path, path: str, task: str, is_so: bool) -> None:
    assert is_named(find_task(task), [Found(tmp_path / path, "train", None)]) == is_so

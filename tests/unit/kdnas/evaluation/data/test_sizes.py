"""A part of a benchmark's part is not the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.sizes import PUBLISHED_EXAMPLES, not_as_published
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.testing.task_files import file


def rte(folder: Path, train: int, dev: int) -> Path:
    for part, number in (("train", train), ("dev", dev)):
        rows = [f"{n}\t{part} {n}\tb\tnot_entailment" for n in range(number)]
        file(folder / "RTE" / f"{part}.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
    return folder


def test_all_that_was_published_is_official(tmp_path: Path) -> None:
    data = load_task(TASKS["rte"], rte(tmp_path, 2490, 277))
    assert (data.official_split, data.notes) == (True, ())


@pytest.mark.parametrize(
    ("train", "dev", "said"),
    [
        (2490, 100, "the dev part has 100 examples, RTE's as published 277"),
        (2490, 276, "the dev part has 276 examples, RTE's as published 277"),
        (1000, 277, "the train part has 1000 examples, RTE's as published 2490"),
    ],
)
def test_less_of_it_is_not(tmp_path: Path, train: int, dev: int, said: str) -> None:
    data = load_task(TASKS["rte"], rte(tmp_path, train, dev))
    assert (data.official_split, data.notes) == (False, (f"not the official split: {said}",))


def test_some_torn_lines_change_nothing() -> None:
    qqp = TASKS["qqp"]
    assert not_as_published(qqp, "dev", [], {"dev": range(40431 - 40)}) == []
    assert not_as_published(qqp, "dev", [], {"dev": range(40431 - 50)})


def test_languages_count_each() -> None:
    mlqa = TASKS["mlqa"]
    scored = {"en": range(11590), "de": range(4000)}
    (said,) = not_as_published(mlqa, "test", [], scored)
    assert said.endswith("the de part has 4000 examples, MLQA's as published 4517 or 512")
    xnli = TASKS["xnli"]
    assert not_as_published(xnli, "test", [], {"de": range(5010)}) == []
    assert not_as_published(xnli, "dev", [], {"de": range(5010)})


def test_every_name_is_that_of_a_task() -> None:
    assert set(PUBLISHED_EXAMPLES) <= {task.name for task in TASKS.values()}

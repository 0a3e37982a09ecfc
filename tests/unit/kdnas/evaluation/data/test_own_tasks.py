"""A user's own tasks in tables, and what is refused of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.choosing import chosen_tasks
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import (
    TextExample,
)
from kdnas.evaluation.tasks.registry import own_task
from kdnas.evaluation.tasks.task import OwnKind
from kdnas.specs.evaluation import EvaluationPlanSpec, OwnTaskSpec
from kdnas.testing.task_files import counts, file


def test_several_labels_of_a_text_are_refused(tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "label": ["a", "b"][: n % 2 + 1]} for n in range(6)]
    path = file(tmp_path / "a.jsonl", *(json.dumps(row) for row in rows))
    with pytest.raises(TaskDataError, match="a list where a label belongs; where a text may"):
        load_task(own_task("mine", "classification"), path)


def test_a_users_own_classification(tmp_path: Path) -> None:
    task = own_task("tickets", "classification", text="body", label="queue")
    rows = [f'"text, {n}",{n % 3 + 8}' for n in range(10)]
    path = file(tmp_path / "all.csv", "body,queue", *rows)
    data = load_task(task, path)
    assert counts(data) == (8, {"dev": 2})
    assert data.labels == ("8", "9", "10")
    assert not data.official_split
    file(tmp_path / "parts" / "train.csv", "body,queue", "a,x", "b,y")
    file(tmp_path / "parts" / "valid.jsonl", json.dumps({"body": "c", "queue": "z"}))
    data = load_task(task, tmp_path / "parts")
    assert counts(data) == (2, {"dev": 1})
    assert data.labels == ("x", "y", "z")


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["1", "²"], ("1", "²")),
        (["--5", "1"], ("--5", "1")),
        (["2", "1" * 5000], ("1" * 5000, "2")),
    ],
)
def test_classes_that_are_numbers_are_in_their_order(
    tmp_path: Path, names: list[str], order: tuple[str, ...]
) -> None:
    """And names that only look like numbers, or have no end, in the alphabet's."""
    rows = [json.dumps({"text": f"a {n}", "label": name}) for n in range(9) for name in names]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows), "utf-8")
    data = load_task(own_task("mine", "classification"), tmp_path / "mine.jsonl")
    assert data.labels == order


def test_a_task_is_called_by_its_file_as_far_as_names_go() -> None:
    for stem, name in (("mine", "mine"), ("n" * 101, "n" * 100), ("two\nlines", "two lines")):
        plan = EvaluationPlanSpec(suite="own", data_dir=f"/data/{stem}.csv")
        (task,) = chosen_tasks(plan)
        assert task.name == name
        assert OwnTaskSpec(name=name).name == name


def test_a_users_own_regression(tmp_path: Path) -> None:
    task = own_task("likeness", "regression", text="a", pair="b", label="score")
    lines = [json.dumps({"a": f"t{n}", "b": "u", "score": n / 4}) for n in range(5)]
    data = load_task(task, file(tmp_path / "all.jsonl", *lines))
    assert counts(data) == (4, {"dev": 1})
    assert data.labels is None
    assert {e.label for e in data.train if isinstance(e, TextExample)} < {0, 0.25, 0.5, 0.75, 1}
    path = file(tmp_path / "bad.csv", "a,b,score", "x,y,high")
    with pytest.raises(TaskDataError, match=r"line 2 has the score 'high'; write a number"):
        load_task(task, path)


def test_wrong_columns_of_a_users_task_are_listed(tmp_path: Path) -> None:
    path = file(tmp_path / "all.csv", "Body,Queue", "a,x", "b,y")
    has = rf"{path} has the columns Body, Queue; it needs "
    with pytest.raises(TaskDataError, match=has + "text and Queue; name the columns as `own.text`"):
        load_task(own_task("mine", "classification", label="Queue"), path)
    with pytest.raises(TaskDataError, match=has + "body and label; name the columns as `own.text`"):
        load_task(own_task("mine", "classification", text="body"), path)
    file(tmp_path / "parts" / "train.csv", "Body,Class", "a,x", "b,y")
    file(tmp_path / "parts" / "dev.csv", "Body,Queue", "a,x", "b,y")
    with pytest.raises(TaskDataError, match=r"train\.csv has the columns Body, Class; it needs"):
        load_task(own_task("m", "classification", text="body", label="queue"), tmp_path / "parts")


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (lambda n: "same", "has the only class 'same'"),
        (
            lambda n: str(n),
            "30 classes, such as '0', for 24 examples .*; for numbers give `own.kind: reg",
        ),
    ],
)
def test_labels_that_are_none_are_refused(
    tmp_path: Path, label: Callable[[int], str], said: str
) -> None:
    path = file(tmp_path / "all.csv", "text,label", *(f"t{n},{label(n)}" for n in range(30)))
    with pytest.raises(TaskDataError, match=said):
        load_task(own_task("mine", "classification"), path)


def test_a_text_that_is_none_is_refused(tmp_path: Path) -> None:
    task = own_task("tickets", "classification")
    path = file(tmp_path / "all.jsonl", json.dumps({"text": None, "label": "x"}))
    with pytest.raises(TaskDataError, match=r"line 1 holds nothing where a text belongs"):
        load_task(task, path)


def test_a_class_that_only_the_scored_part_has_is_told(tmp_path: Path) -> None:
    file(tmp_path / "train.csv", "text,label", "a,x", "b,y")
    file(tmp_path / "test.csv", "text,label", "c,x", "d,zebra", "e,zebra")
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert data.notes == (
        "2 of 3 scored examples have a class that no training example has (zebra)",
    )


def test_the_share_that_is_trained_on_is_the_real_one(tmp_path: Path) -> None:
    rows = [f"{text},{label}" for text, label in (("same", "x"), ("other", "y")) for _ in range(10)]
    data = load_task(own_task("m", "classification"), file(tmp_path / "m.csv", "text,label", *rows))
    assert len(data.train) == 10
    assert "so that 50 % of the labelled examples are trained on" in data.notes[0]


def test_several_files_of_which_none_is_a_part_are_not_guessed_at(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        file(tmp_path / name, "text,label", "a,x", "b,y")
    with pytest.raises(TaskDataError, match=r"several files that could be .*a\.csv, b\.csv; give"):
        load_task(own_task("mine", "classification"), tmp_path)


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        (("idx\ttext\tlabel", "a7\tone\tyes", "a9\ttwo\tno"), ["a7", "a9"]),
        (("text\tlabel\tID", "one\tyes\t3", "two\tno\t1"), ["3", "1"]),
        (("id\ttext\tlabel", "5\tone\tyes", "5\ttwo\tno"), ["1", "2"]),  # they name nothing
        (("id\ttext\tlabel", "5\tone\tyes", "\ttwo\tno"), ["1", "2"]),
        (("text\tlabel", "one\t", "two\tno", "three\tyes"), ["2", "3"]),
    ],
)
def test_examples_are_called_as_the_file_calls_them(
    tmp_path: Path, lines: tuple[str, ...], ids: list[str]
) -> None:
    for part in ("train", "test"):
        file(tmp_path / f"{part}.tsv", *lines)
    task = own_task("mine", "classification")
    data = load_task(task, tmp_path)
    assert [example.id for example in data.evaluations["test"]] == ids


def test_a_text_may_be_in_a_column_that_looks_like_a_name(tmp_path: Path) -> None:
    for part in ("train", "test"):
        file(tmp_path / f"{part}.csv", "index,label", "one,yes", "two,no")
    data = load_task(own_task("mine", "classification", text="index"), tmp_path)
    assert [example.id for example in data.evaluations["test"]] == ["1", "2"]


def test_a_model_that_is_taken_as_it_is_needs_no_training_part(tmp_path: Path) -> None:
    path = file(tmp_path / "mine.csv", "text,label", *(f"t{n},{n % 2}" for n in range(10)))
    task = replace(own_task("mine", "classification"), way="own head")
    data = load_task(task, path)
    assert (len(data.train), [*map(len, data.evaluations.values())]) == (0, [10])
    assert data.notes == ()


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (["a,good", "b,Good", "c,bad"], "the classes 'Good' and 'good' are hardly different"),
        (["a,0", "b,0.0", "c,1"], "the classes '0' and '0.0' are hardly different"),
        (["a,yes", "b,NaN", "c,no"], "2 examples have the class 'NaN', which looks as if they had"),
        (["a,yes", ",no", "c,no"], "2 of 6 examples have a blank text"),
    ],
)
def test_what_may_be_meant_otherwise_is_told(tmp_path: Path, rows: list[str], note: str) -> None:
    for part in ("train", "test"):
        file(tmp_path / f"{part}.csv", "text,label", *rows)
    assert note in " ".join(load_task(own_task("mine", "classification"), tmp_path).notes)


def test_a_number_that_is_none_in_json_is_a_missing_label(tmp_path: Path) -> None:
    for part in ("train", "test"):
        rows = [f'{{"text": "t", "label": {label}}}' for label in ('"a"', '"b"', "NaN")]
        file(tmp_path / f"{part}.jsonl", *rows)
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert (counts(data), data.labels) == ((2, {"test": 2}), ("a", "b"))
    assert "1 row of test.jsonl without a label left out" in data.notes


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("classification", "t,['good']", "holds \"['good']\" where a label belongs"),
        ("regression", "t,1_000", "has the score '1_000'; write a number, with a point such as"),
        ("regression", 't,"0,5"', "has the score '0,5'; write a number, with a point such as 0.5"),
    ],
)
def test_labels_that_only_look_like_some_are_refused(
    tmp_path: Path, kind: OwnKind, row: str, message: str
) -> None:
    path = file(tmp_path / "mine.csv", "text,label", row, row)
    with pytest.raises(TaskDataError) as caught:
        load_task(own_task("mine", kind), path)
    assert message in str(caught.value)


def test_files_that_make_a_part_together_are_read_together(tmp_path: Path) -> None:
    for number in range(2):
        rows = [f"text {number} {n},{n % 2}" for n in range(3 + number)]
        file(tmp_path / f"train-0000{number}-of-00002.csv", "text,label", *rows)
    file(tmp_path / "test-00000-of-00001.csv", "text,label", "a,0", "b,1")
    task = own_task("mine", "classification")
    data = load_task(task, tmp_path)
    assert (counts(data), data.notes) == ((7, {"test": 2}), ())
    (tmp_path / "train-00001-of-00002.csv").unlink()
    with pytest.raises(TaskDataError, match=r"has 1 of the 2 files of its train part, such as tr"):
        load_task(task, tmp_path)


def test_a_test_part_without_labels_is_not_scored(tmp_path: Path) -> None:
    for part, labels in (("train", "010"), ("validation", "01"), ("test", "--")):
        rows = [f"t,{'-1' if label == '-' else label}" for label in labels]
        file(tmp_path / f"{part}.csv", "text,label", *rows)
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert counts(data) == (3, {"dev": 2})
    assert "scored on the dev part: no test part has labels" in data.notes


def test_classes_of_which_none_is_learned_are_refused(tmp_path: Path) -> None:
    file(tmp_path / "train.csv", "text,label", "a,0", "b,1")
    file(tmp_path / "test.csv", "text,label", "a,0.0", "b,1.0")
    said = (
        r"0\.0, 1\.0 \(.*test\.csv, line 2, …\), and learned are 0, 1 \(.*train\.csv, line 2, …\); "
    )
    with pytest.raises(TaskDataError, match=said):
        load_task(own_task("mine", "classification"), tmp_path)


@pytest.mark.parametrize("kind", ["regression", "similarity"])
def test_numbers_that_are_all_the_same_are_refused(tmp_path: Path, kind: OwnKind) -> None:
    path = file(tmp_path / "mine.csv", "text,pair,label", "a,b,2", "c,d,2.0")
    with pytest.raises(
        TaskDataError, match=r"all 2 .*mine\.csv, line [23], …\) have the number 2; give"
    ):
        load_task(own_task("mine", kind, pair="pair"), path)


def test_a_column_says_which_part_a_row_is_of(tmp_path: Path) -> None:
    task = own_task("mine", "classification")
    said = ["train"] * 6 + ["Validation"] * 2 + ["test"] * 3 + ["unsup"]
    rows = [f"text {n},{'ab'[n % 2]},{part}" for n, part in enumerate(said)]
    data = load_task(task, file(tmp_path / "all.csv", "text,label,Split", *rows))
    assert counts(data) == (6, {"test": 3})
    assert len(data.tuning) == 2
    assert data.official_split
    assert data.notes == ("1 rows of all.csv are left out: their Split is 'unsup'",)
    assert [(r.part, r.examples) for r in data.readings] == [("train", 6), ("dev", 2), ("test", 3)]
    assert data.readings[0].about == "text in 'text', label in 'label', part in 'Split'"


def test_a_column_that_says_something_else_is_no_part(tmp_path: Path) -> None:
    rows = [f"text {n},{'ab'[n % 2]},{n % 5}" for n in range(10)]
    data = load_task(
        own_task("mine", "classification"), file(tmp_path / "all.csv", "text,label,set", *rows)
    )
    assert counts(data) == (8, {"dev": 2})
    assert [(r.part, r.about) for r in data.readings] == [
        ("all", "text in 'text', label in 'label'")
    ]


def test_what_lies_beside_the_parts_is_told(tmp_path: Path) -> None:
    for name in ("train.csv", "dev.csv", "extra.csv", "more.csv"):
        file(tmp_path / name, "text,label", "x,a", "y,b")
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert counts(data) == (2, {"dev": 2})
    assert "extra.csv, more.csv are not read: no train, dev or test in the name" in data.notes


@pytest.mark.parametrize("folder", ["data", "default"])
def test_a_repository_of_the_hub_as_it_is_cloned(tmp_path: Path, folder: str) -> None:
    (tmp_path / "README.md").write_text("# A data set\n", "utf-8")
    rows = [json.dumps({"text": f"t{n}", "label": "ab"[n % 2]}) for n in range(4)]
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        file(tmp_path / folder / f"{name}.jsonl", *rows)
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert counts(data) == (8, {"test": 4})
    assert len({example.id for example in data.train}) == 8  # though each file counts its own


def test_examples_of_several_files_keep_their_ids_where_these_differ(tmp_path: Path) -> None:
    def written(first: int) -> list[str]:
        return [
            json.dumps({"id": str(first + n), "text": f"t{n}", "label": "ab"[n % 2]})
            for n in range(4)
        ]

    file(tmp_path / "train-00000-of-00001.jsonl", *written(0))
    file(tmp_path / "test-00000-of-00002.jsonl", *written(1001))
    file(tmp_path / "test-00001-of-00002.jsonl", *written(1005))
    (test,) = load_task(own_task("mine", "classification"), tmp_path).evaluations.values()
    assert [example.id for example in test] == [str(1001 + n) for n in range(8)]
    file(tmp_path / "test-00001-of-00002.jsonl", *written(3))  # to which the others would be moved
    (test,) = load_task(own_task("mine", "classification"), tmp_path).evaluations.values()
    assert len({example.id for example in test}) == 8
    file(tmp_path / "test-00001-of-00002.jsonl", *written(1003))
    (test,) = load_task(own_task("mine", "classification"), tmp_path).evaluations.values()
    assert [example.id for example in test] == [str(1 + n) for n in range(8)]

"""Labels of texts that may have several, or none, as people's files have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdnas.errors import SpecError, TaskDataError
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.understood import understood
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.task import own_task

WANTED = [("anger", "joy"), (), ("joy",), ("fear",)]


def read(folder: Path, name: str, text: str, label: str = "label") -> TaskData:
    for part in ("train", "test"):
        (folder / name.format(part)).write_text(text, "utf-8")
    return load_task(own_task("mine", "multilabel", label=label), folder)


def labels_of(data: TaskData) -> list[object]:
    return [e.label for e in data.evaluations["test"] if isinstance(e, TextExample)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("{}.csv", ["text,label", 'one,"joy, anger"', "two,", "three,joy", "four,fear"]),
        ("{}.csv", ["text;label", "one;joy|anger", "two;", "three;joy", "four;fear"]),
        ("{}.tsv", ["text\tlabel", "one\tjoy;anger", "two\t", "three\tjoy", "four\tfear"]),
        ("{}.tsv", ["text\tlabel", "one\t['joy', 'anger']", "two\t[]", "three\t['joy']"]),
        ("{}.tsv", ["text\tlabel", 'one\t["joy","anger"]', "two\t[]", 'three\t["joy"]']),
        (
            "{}.csv",
            ["id,text,anger,fear,joy", "7,one,1,0,1", "8,two,0,0,0", "9,three,0,0,1"],
        ),
        (
            "{}.tsv",
            ["text\tJoy\tanger\tfear", "one\tTrue\tTrue\tFalse", "two\tno\t0\t", "3\tyes\t0\t0"],
        ),
    ],
)
def test_layouts(tmp_path: Path, name: str, lines: list[str]) -> None:
    columns = "anger,fear,joy" if "label" not in lines[0] else "label"
    data = read(tmp_path, name, "\n".join(lines) + "\n", columns)
    found = [tuple(str(one).lower() for one in labels) for labels in labels_of(data)]  # type: ignore[attr-defined]
    assert [tuple(sorted(one)) for one in found] == WANTED[: len(found)]
    assert len(found) == len(lines) - 1


def test_json_lists_and_numbers(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": ["joy", "anger"]}, {"text": "b", "label": []}]
    rows += [{"text": "c", "label": None}, {"text": "d", "label": [2, 2.0, True]}]
    data = read(tmp_path, "{}.jsonl", "\n".join(map(json.dumps, rows)))
    assert labels_of(data) == [("anger", "joy"), (), ("2", "true")]
    assert data.labels == ("2", "anger", "joy", "true")
    assert any("1 row of test.jsonl without a label left out" in note for note in data.notes)


def test_a_part_whose_cells_are_all_blank_is_published_without_labels(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\none,a|b\ntwo,a\nthree,b\nfour,\n")
    (tmp_path / "dev.csv").write_text("text,label\nfive,a\nsix,\n")
    (tmp_path / "test.csv").write_text("text,label\nseven,\neight,\n")
    data = load_task(own_task("mine", "multilabel"), tmp_path)
    assert list(data.evaluations) == ["dev"]
    assert [e.label for e in data.train if isinstance(e, TextExample)][-1] == ()


def test_rows_that_say_that_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    text = "text,toxic,insult\none,1,0\ntwo,-1,-1\nthree,0,1\n"
    data = read(tmp_path, "{}.csv", text, "toxic,insult")
    assert labels_of(data) == [("toxic",), ("insult",)]


def test_what_was_understood_counts_each_label(tmp_path: Path) -> None:
    data = read(tmp_path, "{}.csv", "text,label\none,a|b\ntwo,\nthree,b\n")
    part = understood(data)["parts"][0]
    assert part["labels"] == {"b": 2, "a": 1}
    assert part["first"] == ["one | a, b", "two | no label", "three | b"]


def test_cells_that_say_neither_yes_nor_no_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TaskDataError, match=r"train.csv, line 3 has '0.7' in the column 'insult', where yes or no"
    ):
        read(tmp_path, "{}.csv", "text,toxic,insult\none,1,0\ntwo,0,0.7\n", "toxic,insult")


def test_a_column_that_is_lacking_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        TaskDataError, match="has the columns text, toxic; it needs text and toxic,"
    ):
        read(tmp_path, "{}.csv", "text,toxic\none,1\ntwo,0\n", "toxic,insult")


def test_one_class_only_and_lists_where_one_label_belongs_are_refused(tmp_path: Path) -> None:
    rows = [json.dumps({"text": str(n), "label": ["a"]}) for n in range(4)]
    with pytest.raises(
        TaskDataError, match=r"has the only class 'a' \(.*jsonl, line \d, …\); give"
    ):
        read(tmp_path, "{}.jsonl", "\n".join(rows))
    with pytest.raises(TaskDataError, match=r"holds a list where .* `own\.kind: multilabel`"):
        load_task(own_task("mine", "classification"), tmp_path)


def test_metrics_of_one_class_each_are_not_those_of_several() -> None:
    with pytest.raises(SpecError, match="metric of a multilabel 'accuracy'"):
        own_task("mine", "multilabel", metrics=("accuracy",))


def test_too_many_labels_are_no_numbers(tmp_path: Path) -> None:
    rows = "".join(f"text {n},label {n}|other {n}\n" for n in range(30))
    with pytest.raises(TaskDataError) as caught:
        read(tmp_path, "{}.csv", f"text,label\n{rows}")
    assert "has 60 classes, such as 'label 0', for 30 examples" in str(caught.value)
    assert str(caught.value).endswith(", …); name another column as `own.label`")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["[0, 1, 0]", "[1, 0, 0]"], "line 2 holds 0 and 1 for each label, '[0, 1, 0]', and not"),
        (["[1 0 1]", "[0 1 1]"], "line 2 holds '[1 0 1]', which is no list of labels; write it as"),
        (['{""a"": [""b""]}', "b"], "which is no list of labels"),
        (
            ["joy|fear", "joy, fear", "joy"],
            "line 3 has ',' between labels, 'joy, fear', where other",
        ),
    ],
)
def test_cells_that_are_no_names_are_refused(
    cells: list[str], message: str, tmp_path: Path
) -> None:
    rows = "".join(f'text,"{cell}"\n' for cell in cells)
    with pytest.raises(TaskDataError) as caught:
        read(tmp_path, "{}.csv", f"text,label\n{rows}")
    assert message in str(caught.value)


def test_sets_and_tuples_are_lists_and_nothing_is_no_label(tmp_path: Path) -> None:
    cells = ["{'joy', 'anger'}", "('joy',)", "[null]", '[""joy"", null]', "(some) joy"]
    rows = "".join(f'text,"{cell}"\n' for cell in cells)
    data = read(tmp_path, "{}.csv", f"text,label\n{rows}")
    assert labels_of(data) == [("anger", "joy"), ("joy",), (), ("joy",), ("(some) joy",)]

"""Folders as people have them: what is read of them, and that what is not is told."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.registry import TASKS, own_task
from kdnas.evaluation.tasks.task import Task
from kdnas.testing.task_files import counts
from kdnas.testing.wild_files import load

PLAIN = own_task("mine", "classification")
FOUND = own_task("found", "retrieval")
NER = TASKS["ner"]
SST = TASKS["sst-2"]


def table(number: int, start: int = 0, mark: str = ",") -> str:
    rows = (f"text {n}{mark}{['good', 'bad'][n % 2]}\n" for n in range(start, start + number))
    return f"text{mark}label\n" + "".join(rows)


SENTENCES = "sentence\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(9))


def columns(number: int, start: int = 0) -> str:
    return "".join(f"Ann{n} B-PER\nran O\n\n" for n in range(start, start + number))


@pytest.mark.parametrize(
    ("task", "files", "number"),
    [
        (
            PLAIN,
            {
                "train/part-00000-4f-c000.csv": table(8),
                "train/part-00001-4f-c000.csv": table(8, 8),
                "train/_SUCCESS": "",
                "test/part-00000-9b-c000.csv": table(4, 20),
            },
            (16, {"test": 4}),
        ),
        (
            PLAIN,
            {
                "train.csv/part-00000.csv": table(8),
                "train.csv/part-00001.csv": table(8, 8),
                "test.csv/part-00000.csv": table(4, 20),
            },
            (16, {"test": 4}),
        ),
        (PLAIN, {"part-00000.csv": table(10), "part-00001.csv": table(10, 10)}, (16, {"dev": 4})),
        (NER, {"engtrain.bio": columns(8), "engtest.bio": columns(4, 8)}, (8, {"test": 4})),
        (NER, {"trainset.txt": columns(8), "testset.txt": columns(4, 8)}, (8, {"test": 4})),
        (PLAIN, {"myTrainData.csv": table(8), "myTestData.csv": table(4, 8)}, (8, {"test": 4})),
        (
            TASKS["rte"],
            {
                "RTE/train.jsonl": '{"premise": "a", "hypothesis": "b", "label": "entailment"}\n'
                * 4,
                "RTE/val.jsonl": '{"premise": "c", "hypothesis": "d", "label": "entailment"}\n' * 2,
            },
            (4, {"dev": 2}),
        ),
    ],
)
def test_it_is_read(
    task: Task, files: Mapping[str, str], number: tuple[int, dict[str, int]], tmp_path: Path
) -> None:
    assert counts(load(task, tmp_path, files)) == number


def test_a_repository_of_the_hub_that_was_converted_to_parquet(tmp_path: Path) -> None:
    for part, start, number in (("train", 0, 12), ("test", 12, 6)):
        folder = tmp_path / "default" / part
        folder.mkdir(parents=True)
        rows = [f"text {n}" for n in range(start, start + number)], ["good", "bad"] * (number // 2)
        pq.write_table(pa.table({"text": rows[0], "label": rows[1]}), folder / "0000.parquet")
    assert counts(load_task(PLAIN, tmp_path)) == (12, {"test": 6})


@pytest.mark.parametrize(
    ("task", "files", "told"),
    [
        (
            NER,
            {"train.txt": columns(9), "eval.txt": columns(4, 9)},
            "eval.txt is not read: no train",
        ),
        (
            SST,
            {
                "SST-2/train.tsv": SENTENCES,
                "SST-2/eval.tsv": "sentence\tlabel\n",
            },
            "eval.tsv is not read: no train",
        ),
        (
            PLAIN,
            {"train.xlsx": b"PK", "test.csv": table(9)},
            "train.xlsx is not read: it is a work",
        ),
        (
            PLAIN,
            {"train.csv.zip": b"PK", "test.csv": table(9)},
            "is not read: it is packed; unpack",
        ),
        (PLAIN, {"train.csv.dvc": "outs:", "test.csv": table(9)}, "fetch it by `dvc pull`"),
        (
            PLAIN,
            {"train.csv.aa": table(9), "test.csv": table(9)},
            "it ends in .aa, and what is read",
        ),
        (
            PLAIN,
            {"train.csv": table(9), "dev.csv": "text\nnone of it\n"},
            "dev.csv is not used: .*dev.csv has the columns text; it needs text and label",
        ),
        (
            PLAIN,
            {"train.csv": table(9), "test.csv": table(4)},
            r"4 of 4 scored texts \(.*test.csv, line 2, …\) are learned from as well",
        ),
    ],
)
def test_it_is_told(
    task: Task, files: Mapping[str, str | bytes], told: str, tmp_path: Path
) -> None:
    notes = load(task, tmp_path, files).notes
    assert any(re.search(told, note) for note in notes), notes


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.csv").symlink_to(tmp_path / "gone.csv")
    os.mkfifo(tmp_path / "dev.csv")
    (tmp_path / "test.csv").write_text(table(9), "utf-8")
    notes = load_task(PLAIN, tmp_path).notes
    assert "train.csv is not read: it is a link to nothing; fetch what it leads to" in notes
    assert "dev.csv is not read: it is no file" in notes


@pytest.mark.parametrize(
    ("task", "files", "message"),
    [
        (
            NER,
            {"task1.iob2": columns(9), "eval1.iob2": columns(4)},
            "several files that could be the task, such as eval1.iob2, task1.iob2",
        ),
        (
            NER,
            {f"doc{n}.conll": columns(2, n) for n in range(3)},
            "3 files that differ in a number alone, doc0.conll, doc1.conll, doc2.conll",
        ),
        (
            PLAIN,
            {f"{part}/good/{n}.txt": "fine" for part in ("train", "test") for n in range(2)},
            "texts that are files of their own are not read",
        ),
        (
            TASKS["conll-2003"],
            {"CoNLL-2003/train.txt": columns(9), "CoNLL-2003/test.txt": columns(4)},
            r"evaluate it as NER, with `suite: ner`, `tasks: NER` and `data_dir: .*/CoNLL-2003`$",
        ),
    ],
)
def test_it_is_refused(task: Task, files: Mapping[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=message):
        load(task, tmp_path, files)


def test_a_task_of_ones_own_may_lie_in_a_folder_called_as_a_benchmark(tmp_path: Path) -> None:
    folder = tmp_path / "CoNLL-2003"
    mine = own_task("CoNLL-2003", "tagging", text="tokens", label="ner_tags")
    data = load(mine, folder, {"train.txt": columns(9), "test.txt": columns(4, 9)})
    assert counts(data) == (9, {"test": 4})
    same = own_task("STS-B", "similarity", text="a", pair="b", label="score")
    data = load(same, tmp_path / "STS-B", {"test.csv": "a,b,score\none,two,1\nred,blue,2\n"})
    assert data.notes == ()


def test_a_collection_in_pieces(tmp_path: Path) -> None:
    files = {f"docs-{n}.jsonl": f'{{"_id": "d{n}", "text": "about {n}"}}\n' for n in range(2)}
    files |= {"topic.dev.tsv": "q\twhat?\n", "topic.dev.small.tsv": "q\twhat?\n"}
    data = load(FOUND, tmp_path, {**files, "qrels.dev.tsv": "q\t0\td1\t1\n"})
    assert (len(data.passages), counts(data)[1]) == (2, {"dev": 1})
    (tmp_path / "topic.dev.small.tsv").write_text("q\tsomething else?\n")
    with pytest.raises(TaskDataError, match=r"line 1 has the id 'q' of another one of the queries"):
        load_task(FOUND, tmp_path)


def test_tabs_in_a_passage_are_blanks(tmp_path: Path) -> None:
    files = {"collection.tsv": "d1\tplain\nd2\tsome\ttext\n", "queries.tsv": "q\twhat?\n"}
    data = load(FOUND, tmp_path, {**files, "qrels.tsv": "q\t0\td2\t1\n"})
    assert data.passages == {"d1": "plain", "d2": "some text"}

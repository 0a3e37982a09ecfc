"""Records as `datasets` writes them: numbers of classes come back as their names."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.records import read_records
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import TaggedExample, TextExample
from kdnas.evaluation.tasks.registry import own_task

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def tagged() -> Dataset:
    features = Features(tokens=List(Value("string")), ner_tags=List(ClassLabel(names=TAGS)))
    rows = {"tokens": [["Anna", "Bo"], ["Rome", "is"]] * 5, "ner_tags": [[1, 2], [3, 0]] * 5}
    return Dataset.from_dict(rows, features=features)


def labelled(labels: list[int | None]) -> Dataset:
    features = Features(text=Value("string"), label=ClassLabel(names=["bad", "good"]))
    rows = {"text": [f"t{n}" for n in range(len(labels))], "label": labels}
    return Dataset.from_dict(rows, features=features)


def test_tags_that_are_numbers_have_their_names_in_parquet(tmp_path: Path) -> None:
    tagged().to_parquet(tmp_path / "all.parquet")
    task = own_task("mine", "tagging", text="tokens", label="ner_tags")
    data = load_task(task, tmp_path / "all.parquet")
    assert data.labels == ("O", "B-LOC", "B-PER", "I-PER")
    first = min(data.train, key=lambda one: int(one.id))
    assert isinstance(first, TaggedExample)
    assert first.tags in {("B-PER", "I-PER"), ("B-LOC", "O")}


def test_a_data_set_that_was_saved_to_a_disk(tmp_path: Path) -> None:
    parts = DatasetDict(train=labelled([0, 1] * 6), validation=labelled([1, 0, -1, None]))
    parts.save_to_disk(tmp_path / "saved", num_shards={"train": 3, "validation": 1})
    data = load_task(own_task("mine", "classification"), tmp_path / "saved")
    assert (len(data.train), {n: len(e) for n, e in data.evaluations.items()}) == (12, {"dev": 2})
    assert data.labels == ("bad", "good")
    assert "2 rows of data-00000-of-00001.arrow without a label left out" in data.notes
    labelled([0, 1] * 6).save_to_disk(tmp_path / "one")
    data = load_task(own_task("mine", "classification"), tmp_path / "one")
    assert [reading.part for reading in data.readings] == ["all"]
    assert {e.label for e in data.train if isinstance(e, TextExample)} == {"bad", "good"}


def test_arrow_of_either_kind(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"], "label": [0, 1]})
    writers = {"file.arrow": pa.ipc.new_file, "stream.arrow": pa.ipc.new_stream}
    for name, new in writers.items():
        with pa.OSFile(str(tmp_path / name), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    wanted = ("row", [(0, {"text": "a", "label": 0}), (1, {"text": "b", "label": 1})])
    assert read_records(tmp_path / "file.arrow") == wanted
    assert read_records(tmp_path / "stream.arrow") == wanted
    (tmp_path / "none.arrow").write_bytes(b"text,label\n")
    with pytest.raises(TaskDataError, match=r"none.arrow cannot be read as Arrow: .*; check the"):
        read_records(tmp_path / "none.arrow")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a" * (1 << 20)] * 200]),
        pa.array([[7] * (1 << 24)] * 2),
        pa.array([[None] * (1 << 24)] * 2, pa.list_(pa.null())),
        pa.array([b"a" * (1 << 20)] * 200, pa.binary(1 << 20)),
    ],
    ids=["lists-of-texts", "lists-of-numbers", "lists-of-nothing", "fixed-size"],
)
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_what_unpacks_without_end_is_refused(suffix: str, column: pa.Array, tmp_path: Path) -> None:
    path, table = tmp_path / f"a.{suffix}", pa.table({"text": column})
    if suffix == "parquet":
        pq.write_table(table, path, compression="zstd")
    else:
        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema, options=packed) as writer,
        ):
            writer.write_table(table)
    assert path.stat().st_size < 1 << 24
    with pytest.raises(TaskDataError, match=rf"a\.{suffix} unpacks to over 30 times its size"):
        read_records(path)


def test_a_class_without_a_name_is_refused(tmp_path: Path) -> None:
    labelled([0, 1]).to_parquet(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    table = table.set_column(1, table.schema.field("label"), pa.array([0, 5], pa.int64()))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(TaskDataError, match="has the class 5, but names for 2 classes from 0 on"):
        read_records(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "said", ["{", '{"info": {"features": {"text": {"_type": "No"}}}}', '{"info":' + "[" * 10**5]
)
def test_metadata_that_datasets_does_not_know(tmp_path: Path, said: str) -> None:
    schema = pa.schema({"text": pa.string()}, metadata={"huggingface": said})
    pq.write_table(pa.table({"text": ["a"]}, schema=schema), tmp_path / "a.parquet")
    with pytest.raises(TaskDataError, match=r"says its columns in a way that datasets .* not know"):
        read_records(tmp_path / "a.parquet")


def test_numbers_of_tags_without_names_are_refused(tmp_path: Path) -> None:
    rows = [json.dumps({"tokens": [f"a{n}", "b"], "ner_tags": [1, 0]}) for n in range(10)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), "utf-8")
    task = own_task("mine", "tagging", text="tokens", label="ner_tags")
    with pytest.raises(
        TaskDataError, match=r"tags of mine .* are numbers, such as 0, .* the names"
    ):
        load_task(task, tmp_path / "a.jsonl")

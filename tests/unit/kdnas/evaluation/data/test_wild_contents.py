"""Files that a stranger has brought, in ways that nobody wrote down: each is read rightly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdnas.errors import SpecError, TaskDataError
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.understood import understood
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TextExample
from kdnas.evaluation.tasks.registry import TASKS, own_task
from kdnas.evaluation.tasks.task import Task
from kdnas.testing.task_files import counts, texts
from kdnas.testing.wild_files import CONLL, CSV, TSV, lines, load, rows

NER = TASKS["ner"]
PLAIN = own_task("mine", "classification")
SEVERAL = own_task("mine", "multilabel")
NUMBERS = own_task("mine", "regression", label="score")
FOUND = own_task("mine", "retrieval", text="question", pair="answer")
POS = own_task("mine", "tagging", metrics=("accuracy",))


def test_marks_that_people_put_before_types(tmp_path: Path) -> None:
    for number, mark in enumerate("–—:_-"):
        text = f"Anna\tB{mark}PER\nMay\tI{mark}PER\ncame\tO\n\nBo\tB{mark}PER\n"
        data = load(NER, tmp_path / str(number), {"a.conll": text})
        tags = {
            one.tokens[0]: one.tags
            for one in [*data.train, *data.evaluations["dev"]]
            if isinstance(one, TaggedExample)
        }
        assert tags == {"Anna": ("B-PER", "I-PER", "O"), "Bo": ("B-PER",)}


@pytest.mark.parametrize("cell", ["()", "set()", "{}", "[]", '"array([], dtype=object)"'])
def test_no_label_as_python_writes_it(tmp_path: Path, cell: str) -> None:
    array = "\"array(['a', 'b'], dtype=object)\""
    content = "text,label\n" + "".join(f"t{n},{array if n % 2 else cell}\n" for n in range(10))
    data = load(SEVERAL, tmp_path, {"a.csv": content})
    every = [*data.train, *data.evaluations["dev"]]
    assert {e.label for e in every if isinstance(e, TextExample)} == {(), ("a", "b")}


def test_what_datasets_has_cached_in_a_folder_is_not_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict, load_from_disk

    columns = {"text": [f"t{n}" for n in range(12)], "label": ["a", "b"] * 6}
    DatasetDict(train=Dataset.from_dict(columns)).save_to_disk(tmp_path)
    loaded = load_from_disk(str(tmp_path))
    loaded["train"].map(lambda row: {"text": f"MAPPED {row['text']}"})
    loaded["train"].filter(lambda row: row["label"] == "a")
    assert list((tmp_path / "train").glob("cache-*.arrow"))
    data = load_task(PLAIN, tmp_path)
    assert counts(data) == (10, {"dev": 2})
    assert not any("MAPPED" in text for text in texts(data.train))


def test_a_collection_in_shards(tmp_path: Path) -> None:
    files = {
        f"corpus-0000{n}-of-00002.jsonl": lines({"_id": f"d{n}", "text": f"text {n}"})
        for n in (0, 1)
    }
    files |= {"queries.jsonl": lines({"_id": "q", "text": "x?"}), "qrels.tsv": "q\td1\t1\n"}
    assert len(load(FOUND, tmp_path / "all", files).passages) == 2
    del files["corpus-00001-of-00002.jsonl"]
    with pytest.raises(TaskDataError, match="1 of the 2 files of its"):
        load(FOUND, tmp_path / "some", files)


def test_judgements_of_the_training_part_alone_are_shown(tmp_path: Path) -> None:
    corpus = lines({"_id": "d", "text": "x"}, {"_id": "e", "text": "y"})
    queries = lines({"_id": "q", "text": "x?"})
    files = {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels.train.tsv": "q\td\t1\n"}
    (part,) = understood(load(FOUND, tmp_path, files))["parts"]
    assert (part["part"], part["examples"]) == ("train", 1)


def test_marks_of_bytes_in_the_middle_and_line_ends_of_two_kinds(tmp_path: Path) -> None:
    data = load(PLAIN, tmp_path, {"a.csv": "\ufeff\ufeff" + CSV + "\ufeff" + "last,good\r\n"})
    assert len(data.train) + len(data.evaluations["dev"]) == 13
    mixed = "text,label\n" + rows(6, "t {n},{label}") + rows(6, "u {n},{label}").replace("\n", "\r")
    data = load(PLAIN, tmp_path / "mixed", {"a.csv": mixed})
    assert len(data.train) + len(data.evaluations["dev"]) == 12


def test_a_table_called_txt_in_a_folder(tmp_path: Path) -> None:
    assert counts(load(PLAIN, tmp_path, {"train.txt": TSV, "test.txt": TSV})) == (12, {"test": 12})


def test_text_beside_a_table_is_for_people(tmp_path: Path) -> None:
    files = {"a.txt": "See the table.", "reviews.csv": CSV, "labels.txt": "good\nbad\n"}
    data = load(PLAIN, tmp_path, files)
    assert len(data.train) + len(data.evaluations["dev"]) == 12
    assert [Path(one).name for one in data.sources] == ["reviews.csv"]
    data = load(PLAIN, tmp_path / "alone", {"table.txt": TSV, "b.md": ""})
    assert len(data.train) + len(data.evaluations["dev"]) == 12
    with pytest.raises(TaskDataError, match=r"several files that could be the task, such as a.txt"):
        load(PLAIN, tmp_path / "two", {"table.txt": TSV, "a.txt": TSV})


@pytest.mark.parametrize(
    "cell", ['"{joy,anger}"', "joy；anger", "joy、anger", '"[""anger"", ""joy""]"']
)
def test_several_labels_in_other_ways(tmp_path: Path, cell: str) -> None:
    content = "text,label\n" + "".join(f"t{n},{cell if n % 2 else 'joy'}\n" for n in range(10))
    data = load(SEVERAL, tmp_path, {"a.csv": content})
    every = [*data.train, *data.evaluations["dev"]]
    assert {e.label for e in every if isinstance(e, TextExample)} == {("joy",), ("anger", "joy")}


def test_what_a_test_part_has_for_nothing(tmp_path: Path) -> None:
    train = "text,score\n" + rows(9, "t {n},{n}")
    data = load(NUMBERS, tmp_path, {"train.csv": train, "test.csv": "text,score\nu,NONE\n"})
    assert any("test.csv is not used" in note for note in data.notes)
    task = own_task("mine", "multilabel", label="joy,fear")
    train = "text,joy,fear\n" + rows(9, "t {n},1,0") + rows(9, "u {n},0,1")
    files = {"train.csv": train, "test.csv": "text,joy,fear\nv,NONE,NONE\n"}
    assert any("test.csv is not used" in note for note in load(task, tmp_path / "b", files).notes)


def test_a_comma_behind_all_rows(tmp_path: Path) -> None:
    data = load(PLAIN, tmp_path, {"a.csv": "text,label\n" + rows(12, "t {n},{label},")})
    assert len(data.train) + len(data.evaluations["dev"]) == 12


def test_texts_that_are_bytes(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": [b"t%d" % n for n in range(12)], "label": [b"a", b"b"] * 6})
    pq.write_table(table, tmp_path / "a.parquet")
    assert load_task(PLAIN, tmp_path / "a.parquet").labels == ("a", "b")


def test_a_mark_that_is_a_word(tmp_path: Path) -> None:
    text = "#\tSYM\n1\tCD\nwins\tVBZ\n\n" * 6 + "it\tPRP\nwins\tVBZ\n"
    data = load(POS, tmp_path, {"a.tsv": text})
    every = [*data.train, *data.evaluations["dev"]]
    assert any(isinstance(one, TaggedExample) and one.tokens[0] == "#" for one in every)


def test_answers_are_looked_for_as_whole_words(tmp_path: Path) -> None:
    about = {"context": "The theory was theirs. Later he left."}
    qas = [{"id": "a", "question": "who?", "answers": [{"text": "he", "answer_start": 0}]}]
    file = json.dumps({"data": [{"paragraphs": [{**about, "qas": qas}]}]})
    data = load(TASKS["squad 1.1"], tmp_path, {"train.json": file, "dev.json": file})
    (one,) = data.train
    assert isinstance(one, SpanExample)
    assert one.starts == (about["context"].index(" he ") + 1,)


def test_sentences_are_named_anew_in_each_document(tmp_path: Path) -> None:
    words = "\n".join(
        f"d{d}\t{s}\t{word}{d}{s}\t{tag}"
        for d in range(6)
        for s in range(1 + d % 2)
        for word, tag in (("Ann", "B-PER"), ("ran", "O"), ("off", "O"))
    )
    for name, content in (("bare", words), ("named", f"doc\tsent\tword\ttag\n{words}")):
        data = load(NER, tmp_path / name, {"a.tsv": content + "\n"})
        every = [*data.train, *data.evaluations["dev"]]
        assert len(every) == 9
        assert all(isinstance(one, TaggedExample) and len(one.tokens) == 3 for one in every)
        assert any("parted where columns 1 and 2 change" in note for note in data.notes)


SPLIT_WORDS = "".join(
    f"{n},Ann{n},B-PER,{part}\n{n},ran,O,{part}\n"
    for n, part in enumerate(["train"] * 6 + ["test"] * 3)
)


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        (NER, "a.csv", "sentence_id,word,tag,split\n" + SPLIT_WORDS),
        (
            own_task("mine", "tagging", text="word", label="tag"),
            "a.csv",
            "sentence_id,word,tag,split\n" + SPLIT_WORDS,
        ),
        (
            NER,
            "a.jsonl",
            lines(
                *(
                    {"tokens": [f"Ann{n}", "ran"], "ner_tags": ["B-PER", "O"], "split": part}
                    for n, part in enumerate(["train"] * 6 + ["test"] * 3)
                )
            ),
        ),
        (
            PLAIN,
            "a.csv",
            "text,label,SemEval_set\n"
            + "".join(f"t{n},{'ab'[n % 2]},{'TRAIN' if n < 6 else 'TEST'}\n" for n in range(9)),
        ),
        (
            TASKS["squad 1.1"],
            "a.jsonl",
            lines(
                *(
                    {
                        "id": str(n),
                        "question": "what?",
                        "context": f"a stone lies {n}",
                        "answers": {"text": ["stone"], "answer_start": [2]},
                        "split": "train" if n < 6 else "test",
                    }
                    for n in range(9)
                )
            ),
        ),
    ],
)
def test_a_column_parts_a_file_in_every_layout(
    task: Task, name: str, content: str, tmp_path: Path
) -> None:
    data = load(task, tmp_path, {name: content})
    assert counts(data) == (6, {"test": 3})


def test_sick_calls_its_development_part_trial(tmp_path: Path) -> None:
    parts = ["TRAIN"] * 6 + ["TRIAL"] * 2 + ["TEST"] * 3
    content = "".join(f"t{n},{'ab'[n % 2]},{part}\n" for n, part in enumerate(parts))
    data = load(PLAIN, tmp_path, {"a.csv": "text,label,SemEval_set\n" + content})
    assert counts(data) == (6, {"test": 3})
    assert len(data.tuning) == 2


@pytest.mark.parametrize("cell", ["['joy' 'anger']", "['anger'  'joy']", "['joy'\n 'anger']"])
def test_labels_as_numpy_writes_them(tmp_path: Path, cell: str) -> None:
    content = "text,label\n" + "".join(f't{n},"{cell if n % 2 else "[]"}"\n' for n in range(10))
    data = load(SEVERAL, tmp_path, {"a.csv": content})
    every = [*data.train, *data.evaluations["dev"]]
    assert {e.label for e in every if isinstance(e, TextExample)} == {(), ("anger", "joy")}


def test_columns_of_labels_in_numbers_with_a_point(tmp_path: Path) -> None:
    task = own_task("mine", "multilabel", label="a,b")
    content = "text,a,b\n" + "".join(f"t{n},{n % 2}.0,1.0\n" for n in range(10))
    data = load(task, tmp_path, {"a.csv": content})
    assert data.labels == ("a", "b")


def test_a_column_cannot_be_text_and_label() -> None:
    with pytest.raises(SpecError, match="'text' cannot hold both texts and what is said of them"):
        own_task("mine", "classification", label="text")


@pytest.mark.parametrize("name", ["usage", "phase", "dataset"])
def test_a_column_of_any_name_may_say_the_part(tmp_path: Path, name: str) -> None:
    parts = ["Train"] * 6 + ["Val"] * 2 + ["Test"] * 3
    content = "".join(f"t{n},{'ab'[n % 2]},{part}\n" for n, part in enumerate(parts))
    for kind, files in (
        ("csv", {"a.csv": f"text,label,{name}\n" + content}),
        (
            "jsonl",
            {
                "a.jsonl": lines(
                    *(
                        {"text": f"t{n}", "label": "ab"[n % 2], name: part}
                        for n, part in enumerate(parts)
                    )
                )
            },
        ),
    ):
        assert counts(load(PLAIN, tmp_path / kind, files)) == (6, {"test": 3})


def test_types_that_begin_as_marks_do(tmp_path: Path) -> None:
    words = "Ann NAME\nat O\na@b E-MAIL\nc@d E-MAIL\nRome PLACE\n\n"
    data = load(
        NER, tmp_path, {"a.txt": "".join(words.replace("Ann", f"Ann{n}") for n in range(9))}
    )
    (first, *_) = data.train
    assert isinstance(first, TaggedExample)
    assert first.tags == ("B-NAME", "O", "B-E-MAIL", "I-E-MAIL", "B-PLACE")


def test_a_comment_below_a_header_or_within_a_sentence(tmp_path: Path) -> None:
    content = "TOKEN\tNE-COARSE\n# document_id = x\n" + CONLL.replace("\n", "\n# note = y\n", 1)
    content = content.replace("B-ORG", "B-ORG")
    data = load(NER, tmp_path, {"a.tsv": content})
    plain = load(NER, tmp_path / "plain", {"a.tsv": CONLL})
    every = [[*one.train, *one.evaluations["dev"]] for one in (data, plain)]
    assert [e.tags for e in every[0] if isinstance(e, TaggedExample)] == [
        e.tags for e in every[1] if isinstance(e, TaggedExample)
    ]

"""Queries and passages as people have them: collections of BEIR, MS MARCO and TREC, and tables."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.choosing import tasks_with_data
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.understood import understood
from kdnas.evaluation.finetuning.identity import data_fingerprint
from kdnas.evaluation.tasks.examples import RetrievalExample, TaskData
from kdnas.evaluation.tasks.task import own_task
from kdnas.specs.evaluation import EvaluationPlanSpec

TEXTS = {"d1": "Rivers carry water.", "d2": "Stones Stones lie still.", "d3": "Clouds pass."}
QUERIES = {"q1": "what carries water?", "q2": "what lies still?"}


def lines(path: Path, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", "utf-8")


def objects(*rows: dict[str, object]) -> list[str]:
    return [json.dumps(row) for row in rows]


def beir(folder: Path) -> None:
    corpus = [
        {"_id": "d1", "title": "", "text": TEXTS["d1"]},
        {"_id": "d2", "title": "Stones", "text": "Stones lie still."},
        {"_id": "d3", "text": TEXTS["d3"], "metadata": {}},
    ]
    lines(folder / "corpus.jsonl", *objects(*corpus))
    lines(folder / "queries.jsonl", *objects(*({"_id": k, "text": v} for k, v in QUERIES.items())))
    lines(folder / "qrels" / "train.tsv", "query-id\tcorpus-id\tscore", "q1\td3\t1")
    judged = ["q1\td1\t2", "q1\td3\t0", "q2\td2\t1"]
    lines(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", *judged)


def ms_marco(folder: Path) -> None:
    lines(folder / "collection.tsv", *(f"{k}\t{v}" for k, v in TEXTS.items()))
    lines(folder / "queries.dev.tsv", *(f"{k}\t{v}" for k, v in QUERIES.items()))
    lines(folder / "qrels.dev.tsv", "q1\t0\td1\t2", "q1\t0\td3\t0", "q2\t0\td2\t1")


def trec(folder: Path) -> None:
    rows = objects(*({"docid": k, "contents": v} for k, v in TEXTS.items()))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "documents.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    lines(folder / "topics.csv", "qid,query", *(f'{k},"{v}"' for k, v in QUERIES.items()))
    lines(folder / "my.qrels.txt", "q1 0 d1 2", "q1 0 d3 0", "q2 0 d2 1")


def json_files(folder: Path) -> None:
    passages = [{"id": k, "passage": v} for k, v in TEXTS.items()]
    queries = [{"id": k, "question": v} for k, v in QUERIES.items()]
    judged = [("q1", "d1", 2), ("q1", "d3", 0), ("q2", "d2", 1)]
    lines(folder / "Passages.json", json.dumps(passages))
    lines(folder / "Questions.json", json.dumps({"data": queries}))
    rows = [{"query_id": q, "passage_id": p, "relevance": g} for q, p, g in judged]
    lines(folder / "judgements.jsonl", *objects(*rows))


def loaded(where: Path, **columns: str) -> TaskData:
    return load_task(own_task("mine", "retrieval", **columns), where)  # type: ignore[arg-type]


def grades(data: TaskData) -> dict[str, dict[str, float]]:
    (examples,) = data.evaluations.values()
    return {e.id: dict(e.grades) for e in examples if isinstance(e, RetrievalExample)}


@pytest.mark.parametrize("layout", [beir, ms_marco, trec, json_files])
def test_collections(layout: object, tmp_path: Path) -> None:
    layout(tmp_path / "my data")  # type: ignore[operator]
    data = loaded(tmp_path / "my data")
    assert data.passages == TEXTS
    assert grades(data) == {"q1": {"d1": 2.0}, "q2": {"d2": 1.0}}
    ((part, examples),) = data.evaluations.items()
    assert part == ("dev" if layout is ms_marco else "test")
    assert [e.query for e in examples if isinstance(e, RetrievalExample)] == [*QUERIES.values()]
    assert (data.train, data.notes, data.official_split) == ((), (), True)


def test_a_collection_is_found_before_anything_is_read(tmp_path: Path) -> None:
    beir(tmp_path)
    own = {"kind": "retrieval", "name": "mine"}
    spec = EvaluationPlanSpec.read({"suite": "own", "data_dir": str(tmp_path), "own": own}, "it")
    assert [task.name for task in tasks_with_data(spec)] == ["mine"]


def test_what_was_understood(tmp_path: Path) -> None:
    beir(tmp_path)
    told = understood(loaded(tmp_path))
    assert [(f["part"], f["examples"]) for f in told["files"]] == [
        ("passages", 3),
        ("queries", 2),
        ("test", 2),
        ("train", 1),
    ]
    (part,) = told["parts"]
    assert part["labels"] == {"passages": 3, "answers of grade 2": 1, "answers of grade 1": 1}
    assert part["first"] == [
        "what carries water? | Rivers carry water.",
        "what lies still? | Stones Stones lie still.",
    ]


def test_a_table_has_a_query_and_its_answer_a_row(tmp_path: Path) -> None:
    rows = ["how?,like this", "how?,or so", "why?,like this", "why?,because"]
    lines(tmp_path / "faq.csv", "Question,Answer", *rows)
    data = loaded(tmp_path / "faq.csv", text="question", pair="answer")
    assert data.passages == {"2": "like this", "3": "or so", "5": "because"}
    assert grades(data) == {"2": {"2": 1.0, "3": 1.0}, "4": {"2": 1.0, "5": 1.0}}
    assert data.readings[0].about.endswith("second text in 'Answer', which answers it")


def test_a_column_says_which_rows_are_scored(tmp_path: Path) -> None:
    """All passages are searched, those of rows that are not scored as well."""
    rows = ["how?,like this,train", "why?,because,test", "when?,now,test", "who?,me,other"]
    lines(tmp_path / "faq.csv", "question,answer,split", *rows)
    data = loaded(tmp_path / "faq.csv", text="question", pair="answer")
    assert list(data.evaluations) == ["test"]
    assert grades(data) == {"3": {"3": 1.0}, "4": {"4": 1.0}}
    assert len(data.passages) == 4
    assert [(reading.part, reading.examples) for reading in data.readings] == [
        ("train", 1),
        ("test", 2),
    ]
    assert data.readings[0].about.endswith("part in 'split', which answers it")


def test_a_table_may_grade_its_answers(tmp_path: Path) -> None:
    rows = ["how?,like this,3", "how?,never,0", "why?,never,0"]
    lines(tmp_path / "faq.csv", "question,answer,stars", *rows)
    columns = {"text": "question", "pair": "answer"}
    data = loaded(tmp_path / "faq.csv", label="stars", **columns)
    assert (len(data.passages), grades(data)) == (2, {"2": {"2": 3.0}})
    with pytest.raises(TaskDataError, match="it needs question and answer and grade; name the"):
        loaded(tmp_path / "faq.csv", label="grade", **columns)


def test_passages_of_all_parts_are_searched(tmp_path: Path) -> None:
    lines(tmp_path / "train.csv", "text,answer", "who?,me", "when?,now")
    lines(tmp_path / "test.csv", "text,answer", "where?,here", "who?,you")
    data = loaded(tmp_path, pair="answer")
    assert sorted(data.passages.values()) == ["here", "me", "now", "you"]
    assert grades(data) == {"test-2": {"test-2": 1.0}, "train-2": {"test-3": 1.0}}


def test_judgements_of_what_is_not_there_are_told(tmp_path: Path) -> None:
    beir(tmp_path)
    more = ["q1\td1\t1", "q1\tgone\t1", "q9\td1\t1"]
    lines(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", *more)
    data = loaded(tmp_path)
    assert grades(data) == {"q1": {"d1": 1.0, "gone": 1.0}}
    assert data.notes == (
        "1 judgements of test.tsv are of a query that is not there (q9), and left out",
        "1 judgements of test.tsv are of a passage that is not there (gone), and counted as not "
        "found",
    )


def test_data_are_named_by_their_passages_too(tmp_path: Path) -> None:
    beir(tmp_path)
    before = data_fingerprint(loaded(tmp_path))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("Clouds", "Birds"))
    assert data_fingerprint(loaded(tmp_path)) != before


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        (
            "corpus.jsonl",
            ['{"_id": "d1", "text": "a"}', '{"_id": "d1", "text": "b"}'],
            "line 2 has the id .d1. of an",
        ),
        ("corpus.jsonl", ['{"_id": "d1", "text": 5}'], "line 1 holds a int instead of a text"),
        ("corpus.jsonl", ['{"_id": "", "text": "a"}'], "line 1 has no id"),
        ("corpus.jsonl", ['{"name": "d1"}'], r"line 1 has name, and needs id \(as _id, id, .* and"),
        ("queries.jsonl", ['{"_id": "q1", "text": " "}'], "line 1 has a blank query"),
        ("queries.jsonl", ["{"], "line 1 is not JSON"),
        ("qrels/test.tsv", ["a\tb"], r"line 1 has a, b, and needs query \(as query-id"),
        ("qrels/test.tsv", ["q1\td1\tgood"], "line 1 has the grade 'good'; write how well"),
        ("qrels/test.tsv", ["q1\td1\tnan"], "line 1 has the grade 'nan'"),
        ("qrels/test.tsv", ["q1\td1\t" + "9" * 400], "has the grade '9+'"),
        ("qrels/test.tsv", ["q1\td1\t1", "q1\td2"], "line 2 has 2 columns, 3 are needed"),
        ("qrels/test.tsv", ["x\td1\t1"], "judges passages of no query that there is, such as 'x'"),
        ("qrels/test.tsv", ["q1\td1\t0"], "no query of mine has a passage that answers it, by"),
        ("qrels/test.tsv", [""], "is empty"),
        ("qrels/test.tsv", ["q1\td1\t1_0"], "has the grade '1_0'"),
        ("qrels/test.tsv", ["q1\t1.0\t1"], "judges no passage that there is, only others such as"),
    ],
)
def test_what_is_refused(file: str, rows: list[str], message: str, tmp_path: Path) -> None:
    beir(tmp_path)
    lines(tmp_path / file, *rows)
    with pytest.raises(TaskDataError, match=message):
        loaded(tmp_path)


def test_a_collection_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    beir(tmp_path)
    for file in (tmp_path / "qrels").iterdir():
        file.unlink()
    with pytest.raises(TaskDataError, match="has passages and queries and no judgements; a coll"):
        loaded(tmp_path)
    lines(tmp_path / "documents.jsonl", '{"_id": "d1", "text": "a"}')
    with pytest.raises(TaskDataError, match=r"several files of passages, corpus.jsonl, documents"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("rows", "pair", "message"),
    [
        (["text,answer", "a,b"], None, r"needs the column of its passages; name it as `own.pair`"),
        (["text,answer", "a,b", "c,"], "answer", "line 3 lacks a query or its passage"),
        (["text,answer,label", "a,b,yes"], "answer", "line 2 has the grade 'yes'"),
        (["text,answer,label", "a,b,0"], "answer", "no query of mine has a passage that answers"),
    ],
)
def test_tables_that_are_refused(
    rows: list[str], pair: str | None, message: str, tmp_path: Path
) -> None:
    lines(tmp_path / "faq.csv", *rows)
    with pytest.raises(TaskDataError, match=message):
        loaded(tmp_path / "faq.csv", **({} if pair is None else {"pair": pair}))

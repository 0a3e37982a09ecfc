"""Queries, and the passages among which they are answered: a collection's files, or a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.csv_rows import csv_rows, is_written_list
from kdnas.evaluation.data.files.opening import read_text, suffix_of
from kdnas.evaluation.data.files.records import read_records
from kdnas.evaluation.data.files.tables import Row, read_table
from kdnas.evaluation.data.finding import COLLECTION, Found, find_files, parts_of
from kdnas.evaluation.data.parts import in_column, rows_by_part
from kdnas.evaluation.data.understood import in_words
from kdnas.evaluation.tasks.examples import Reading, RetrievalExample, TaskData
from kdnas.evaluation.tasks.task import RECORD_FILES, Task
from kdnas.reach import ANYWHERE, Reach

_PARTS = ("test", "dev", "train")
"""The first of these that there is is scored."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class _Layout:
    """What the rows of a file hold.

    Attributes:
        names: what is wanted → how its column may be called, in lower case.
        needed: of these, what there must be.
        bare: number of columns without a header → what they hold.
    """

    names: Mapping[str, Sequence[str]]
    needed: Sequence[str]
    bare: Mapping[int, Sequence[str]]


_OF_PASSAGE = ("corpus-id", "corpus_id", "docid", "doc_id", "docno", "pid", "passage_id")
_OF_QUERY = ("query-id", "query_id", "qid")
_TEXTS: Final[Mapping[str, _Layout]] = {
    "passages": _Layout(
        {
            "id": ("_id", "id", *_OF_PASSAGE),
            "text": ("text", "contents", "passage", "document", "body"),
            "title": ("title",),
        },
        ("id", "text"),
        {2: ("id", "text")},
    ),
    "queries": _Layout(
        {"id": ("_id", "id", *_OF_QUERY), "text": ("text", "query", "question", "title")},
        ("id", "text"),
        {2: ("id", "text")},
    ),
}
_JUDGED: Final = _Layout(
    {
        "query": (*_OF_QUERY, "query"),
        "passage": (*_OF_PASSAGE, "passage"),
        "grade": ("score", "relevance", "grade", "rel", "label"),
    },
    ("query", "passage"),
    {3: ("query", "passage", "grade"), 4: ("query", "iteration", "passage", "grade")},
)


def load_retrieval(task: Task, where: Path, reach: Reach = ANYWHERE) -> TaskData:
    """Read queries, passages and which of these answer which query.

    A folder may have them as BEIR and MS MARCO do: ``corpus.jsonl``, ``queries.jsonl`` and
    ``qrels/test.tsv``, or tables of names and texts, judgements with a header or as TREC writes
    them. A table, or a folder with one a part, has a query and a passage a row; each answers, or
    has a grade. Its passages are those of all parts.

    Args:
        task: a retrieval, which names the columns of a table.
        where: folder or file.
        reach: how files are opened.

    Raises:
        RequestError: one of them is out of reach.
        TaskDataError: something is not there or cannot be read; names file and line.
    """
    files = find_files(task, where, reach)
    read = _Read()
    if any(file.key in COLLECTION for file in files):
        _read_collection(read, where, files, reach)
    else:
        files, read.notes = parts_of(files)
        _read_tables(read, task, files, reach)
    part = next(one for one in _PARTS if one in read.grades)
    examples = [
        RetrievalExample(id_, read.queries[id_], grades)
        for id_, grades in read.grades[part].items()
        if grades
    ]
    if not examples:
        raise TaskDataError(
            f"no query of {task.name} has a passage that answers it, by {read.judged_by(part)}; "
            "grades above 0 say that one does"
        )
    if len(read.passages) < 2:
        raise TaskDataError(
            f"{where} has {len(read.passages)} passage of {task.name}, so that whatever finds it "
            "is right; name another column as `own.pair`, or give more"
        )
    blank = sum(not text for text in read.passages.values())
    if blank:
        read.notes.append(f"{blank} of {len(read.passages)} passages are blank")
    return TaskData(
        task=task,
        train=(),
        evaluations={part: examples},
        labels=None,
        official_split=True,
        sources=tuple(dict.fromkeys(reading.source for reading in read.readings)),
        notes=tuple(read.notes),
        readings=tuple(read.readings),
        passages=read.passages,
    )


@dataclass
class _Read:
    """What has been read.

    Attributes:
        passages: name → text.
        queries: name → text.
        grades: part → query → passage → grade, of those that answer.
    """

    passages: dict[str, str] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    grades: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def judged_by(self, part: str) -> str:
        """Files that say which passages answer, for messages."""
        return ", ".join(one.source for one in self.readings if one.part == part)


def _read_collection(read: _Read, where: Path, files: Sequence[Found], reach: Reach) -> None:
    of = {kind: [file for file in files if file.key == kind] for kind in COLLECTION}
    lacking = [kind for kind in COLLECTION if not of[kind]]
    if lacking:
        raise TaskDataError(
            f"{where} has {' and '.join(kind for kind in COLLECTION if of[kind])} and no "
            f"{' and no '.join(lacking)}; a collection is corpus.jsonl, queries.jsonl and "
            "qrels/test.tsv"
        )
    for kind, texts in (("passages", read.passages), ("queries", read.queries)):
        for file in of[kind]:
            before = len(texts)
            _add_texts(texts, kind, file.path, reach)
            read.readings.append(Reading(str(file.path), kind, len(texts) - before))
    for file in of["judgements"]:
        _add_judgements(read, file, reach)
    for part in dict.fromkeys(file.part or "test" for file in of["judgements"]):
        names = [f.path.name for f in of["judgements"] if (f.part or "test") == part]
        if len(names) > 1 and not all(f.shards for f in of["judgements"]):
            read.notes.append(
                f"judgements of the {part} part are those of {' and '.join(names)} together"
            )


def _add_texts(texts: dict[str, str], kind: str, path: Path, reach: Reach) -> None:
    for where, row in _rows(path, _TEXTS[kind], reach):
        id_ = _name(row["id"], where)
        text = " ".join(filter(None, (_text(row.get(key), where) for key in ("title", "text"))))
        # MS MARCO's files of queries hold some of them once more.
        if texts.get(id_, text) != text:
            raise TaskDataError(
                f"{where} has the id {id_!r} of another one of the {kind}; each needs its own"
            )
        if kind == "queries" and not text:
            raise TaskDataError(f"{where} has a blank query; write one, or leave out the line")
        texts[id_] = text


def _add_judgements(read: _Read, file: Found, reach: Reach) -> None:
    part = file.part or "test"
    strange: dict[str, list[str]] = {"query": [], "passage": []}
    known = {"query": read.queries, "passage": read.passages}
    grades = read.grades.setdefault(part, {})
    count = 0
    given: dict[tuple[str, str], float] = {}
    several = 0
    for where, row in _rows(file.path, _JUDGED, reach):
        query, passage = (_name(row[key], where) for key in ("query", "passage"))
        grade = _grade(row.get("grade", 1), where)
        several += given.setdefault((query, passage), grade) != grade
        for key, id_ in (("query", query), ("passage", passage)):
            if id_ not in known[key]:
                strange[key].append(id_)
        if query in read.queries:
            count += 1
            # trec_eval, too, counts a passage that is nowhere as one that was not found.
            if grade > 0:
                grades.setdefault(query, {})[passage] = grade
    if not given:
        raise TaskDataError(f"{file.path} holds no judgement; write a query and a passage a line")
    if not count:
        raise TaskDataError(
            f"{file.path} judges passages of no query that there is, such as "
            f"{next(iter(strange['query']), 'none')!r}; check that ids are those of the queries"
        )
    if grades and not any(known["passage"].keys() & own for own in grades.values()):
        raise TaskDataError(
            f"{file.path} judges no passage that there is, only others such as "
            f"{next(iter(strange['passage']), 'none')!r}; check that ids are those of the passages"
        )
    for key, what in (("query", "left out"), ("passage", "counted as not found")):
        if strange[key]:
            named = ", ".join(dict.fromkeys(strange[key][:_MOST_NAMED]))
            read.notes.append(
                f"{len(strange[key])} judgements of {file.path.name} are of a {key} that is not "
                f"there ({named}), and {what}"
            )
    if several:
        read.notes.append(
            f"{several} judgements of {file.path.name} say something else than an earlier one of "
            "the same query and passage; any above 0 counts, the last of them"
        )
    said = _first_of(read, grades)
    queries = f"{len(grades)} {'query' if len(grades) == 1 else 'queries'}"
    about = f"{count} judgement{'' if count == 1 else 's'} of {queries} with an answer"
    read.readings.append(Reading(str(file.path), part, len(grades), about, said))


def _read_tables(read: _Read, task: Task, files: Sequence[Found], reach: Reach) -> None:
    (columns,) = task.layout.columns
    if columns.pair is None:
        raise TaskDataError(
            f"{files[0].path} is a table, so that a retrieval needs the column of its passages; "
            "name it as `own.pair`, or give a folder with corpus.jsonl, queries.jsonl "
            "and qrels/test.tsv"
        )
    by_text: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for file in files:
        table = read_table(file.path, task.layout, reach)
        if not table.labelled and columns.label != "label":
            raise TaskDataError(table.lacking)
        if table.rows and all(is_written_list(str(row.pair)) for row in table.rows):
            raise TaskDataError(
                f"{file.path} has lists for passages; write a row for each passage of a query"
            )
        said = [str(row.part) for row in table.rows]
        by_part, notes = rows_by_part(file, table.part_column, said, table.rows)
        about = in_column(table.about, table.part_column, by_part)
        how = about if table.labelled else f"{about}, which answers it"
        # Of all rows, also of those whose part is not known: whoever searches meets their passages.
        prefix = f"{file.part or 'test'}-" if len(files) > 1 else ""
        names = {row.number: _names_of(read, by_text, row, prefix) for row in table.rows}
        for named, rows in by_part.items():
            part = file.part or named or "test"
            grades = read.grades.setdefault(part, {})
            for row in rows:
                query, passage = names[row.number]
                own = grades.setdefault(query, {})
                grade = _grade(row.label, row.where) if table.labelled else 1.0
                if grade > 0:
                    own[passage] = grade
            answered = {query: own for query, own in grades.items() if own}
            first = _first_of(read, answered)
            read.readings.append(Reading(str(file.path), part, len(answered), how, first))
        read.notes += [*table.notes, *notes]


def _names_of(
    read: _Read, by_text: tuple[dict[str, str], dict[str, str]], row: Row, prefix: str
) -> tuple[str, str]:
    """The names of a row's query and passage, which the same texts have in every row."""
    names = []
    for texts, known, value in zip(
        (read.queries, read.passages), by_text, (row.text, row.pair), strict=True
    ):
        text = _text(value, row.where)
        if not text:
            raise TaskDataError(
                f"{row.where} lacks a query or its passage; fill the cell, or leave out the row"
            )
        names.append(known.setdefault(text, f"{prefix}{row.number}"))
        texts.setdefault(names[-1], text)
    query, passage = names
    return query, passage


def _first_of(read: _Read, grades: Mapping[str, Mapping[str, float]]) -> str:
    """The first query with its answers, in words; empty where there is none."""
    for query, own in grades.items():
        return in_words(RetrievalExample(query, read.queries[query], own), read.passages)
    return ""


def _rows(path: Path, layout: _Layout, reach: Reach) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a file, by what is wanted of them, with where each stands."""
    if suffix_of(path) in RECORD_FILES:
        unit, records = read_records(path, reach)
        for number, record in records:
            where = f"{path}, {unit} {number}"
            keys = {name.strip().lower(): name for name in record}
            yield (
                where,
                {
                    wanted: record[keys[name]]
                    for wanted, name in _columns(layout, list(keys), where).items()
                },
            )
        return
    lines = list(_cells(path, read_text(path, reach)))
    if not lines:
        raise TaskDataError(f"{path} is empty; check the file")
    header = [cell.strip().lower() for cell in lines[0][1]]
    if set(layout.needed) <= set(_found(layout, header)):
        places = {wanted: header.index(name) for wanted, name in _found(layout, header).items()}
        lines = lines[1:]
    elif len(header) in layout.bare:
        places = {wanted: n for n, wanted in enumerate(layout.bare[len(header)])}
    else:
        _columns(layout, header, f"{path}, line 1")
    for number, cells in lines:
        last = max(places.values())
        if len(cells) > len(header) and last == len(header) - 1 and suffix_of(path) != ".csv":
            cells = [*cells[:last], " ".join(cells[last:])]  # a text with tabs in it
        if len(cells) <= last:
            raise TaskDataError(
                f"{path}, line {number} has {len(cells)} columns, {last + 1} are needed; mend or "
                "remove the line"
            )
        yield f"{path}, line {number}", {key: cells[place] for key, place in places.items()}


def _cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines in cells: by tabs, or commas of CSV, or the blanks of TREC where there are no tabs."""
    if suffix_of(path) == ".csv":
        yield from csv_rows(path, text, lambda names: len(names) > 1)
        return
    tabs = "\t" in text.lstrip("\n").partition("\n")[0]
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.split("\t") if tabs else line.split()


def _found(layout: _Layout, names: Sequence[str]) -> dict[str, str]:
    chosen = {
        wanted: next((name for name in known if name in names), None)
        for wanted, known in layout.names.items()
    }
    return {wanted: name for wanted, name in chosen.items() if name is not None}


def _columns(layout: _Layout, names: Sequence[str], where: str) -> dict[str, str]:
    """What is wanted → the name of its column.

    Raises:
        TaskDataError: something that is needed is lacking.
    """
    found = _found(layout, names)
    lacking = [wanted for wanted in layout.needed if wanted not in found]
    if lacking:
        needed = " and ".join(f"{key} (as {', '.join(layout.names[key])})" for key in lacking)
        raise TaskDataError(
            f"{where} has {', '.join(names) or 'nothing'}, and needs {needed}; name the columns so"
        )
    return found


def _name(value: Any, where: str) -> str:
    name = "" if value is None or isinstance(value, list | dict) else str(value).strip()
    if not name:
        raise TaskDataError(f"{where} has no id; give each its own")
    return name


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TaskDataError(
            f"{where} holds a {type(value).__name__} instead of a text; check the column"
        )
    return value.strip()


def _grade(value: Any, where: str) -> float:
    try:
        grade = math.nan if "_" in str(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        grade = math.nan
    if not math.isfinite(grade):
        raise TaskDataError(
            f"{where} has the grade {value!r}; write how well the passage answers as a number, 0 "
            "for not at all"
        )
    return grade

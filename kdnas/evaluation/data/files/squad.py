"""Questions about contexts: SQuAD's JSON, which TyDiQA-GoldP, XQuAD and MLQA share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.opening import read_text, strict_json
from kdnas.evaluation.data.files.records import read_records
from kdnas.evaluation.data.files.tables import PART_COLUMNS
from kdnas.evaluation.tasks.examples import SpanExample
from kdnas.reach import ANYWHERE, Reach

NOT_FOUND = -1


def read_squad(path: Path, reach: Reach = ANYWHERE) -> list[SpanExample] | None:
    """Read a file of SQuAD's layout: data → paragraphs → questions.

    Returns:
        The questions, with distinct ids; None where the file says of no question what its answer
        is, as test parts do.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: the file is not JSON of this layout, or empty.
    """
    try:
        content = strict_json(read_text(path, reach))
    except (ValueError, RecursionError) as error:
        raise TaskDataError(f"{path} is not JSON: {error}; check the file") from None
    try:
        found = list(_questions(content, path))
    except _AMISS as error:
        raise TaskDataError(
            f"{path} is not in the layout of SQuAD ({_amiss(error)}); it needs data, and in it "
            "paragraphs with context and qas, and in these id, question and answers with text and "
            "answer_start"
        ) from None
    if not found:
        raise TaskDataError(f"{path} holds no question; check the file")
    if not any(answered for _, answered in found):
        return None
    bare = [one.id for one, _ in found if not one.impossible and not one.answers]
    if bare:
        raise TaskDataError(
            f"{path} says of {len(bare)} of {len(found)} questions, such as {bare[0]!r}, neither "
            "an answer nor that there is none; add answers, or is_impossible: true"
        )
    return distinct_ids(example for example, _ in found)


def read_squad_rows(
    path: Path, reach: Reach = ANYWHERE
) -> tuple[list[SpanExample], str, list[str]]:
    """Read a file with a question a row, in the columns that SQuAD has on the hub.

    Returns:
        The questions; the column that says which part each is of, empty where none does; and what
        it says.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: it cannot be read, is empty, or a row is not of that layout.
    """
    unit, records = read_records(path, reach)
    if not records:
        raise TaskDataError(f"{path} holds no question; check the file")
    found: list[SpanExample] = []
    names = {name.strip().lower(): name for _, record in records for name in record}
    column = next((names[name] for name in PART_COLUMNS if name in names), "")
    said = [str(record.get(column, "")) for _, record in records if column]
    for number, record in records:
        try:
            found += from_squad_rows([record], f"{path}, {unit} {number}")
        except _AMISS as error:
            raise TaskDataError(
                f"{path}, {unit} {number} is not in the layout of SQuAD on the hub "
                f"({_amiss(error)}); it needs id, question, context and answers, and in these text "
                "and answer_start"
            ) from None
    return distinct_ids(found), column, said


_AMISS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a reader of a layout stumbles over; the last of numbers such as 1e999."""


def _amiss(error: Exception) -> str:
    """What a reader of a layout stumbled over, in words."""
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return str(error) if isinstance(error, _LayoutError) else "something else stands in its place"


class _LayoutError(ValueError):
    """What is amiss is known."""


def from_squad_rows(rows: Iterable[Mapping[str, Any]], where: str = "") -> list[SpanExample]:
    """Examples of a data set with the columns of SQuAD.

    Args:
        rows: of the data set.
        where: they are, for messages.

    Raises:
        KeyError: a column is missing.
    """
    found = []
    for row in rows:
        answers = row["answers"]
        if isinstance(answers, Mapping):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
        id_, question, context = str(row["id"]), row["question"], row["context"]
        found.append(span_example(id_, question, context, pairs, not pairs, where))
    return distinct_ids(found)


def span_example(
    id_: str,
    question: str,
    context: str,
    answers: Iterable[tuple[str, int]],
    impossible: bool,
    where: str = "",
) -> SpanExample:
    """An example whose starts are right: an answer that lies elsewhere is looked for.

    Some published files count bytes, or another text's characters. An answer that is nowhere in
    the context keeps its text, for scoring, and starts at −1.
    """
    texts, starts, moved = [], [], 0
    for text, start in answers:
        found = _located(context, text, start)
        texts.append(text)
        starts.append(found)
        moved += found not in (start, NOT_FOUND)
    spans = tuple(texts), tuple(starts)
    return SpanExample(id_, question, context, *spans, impossible, where=where, moved=moved)


def distinct_ids(examples: Iterable[SpanExample]) -> list[SpanExample]:
    """Number the examples whose id was there before: predictions are kept by id."""
    seen: dict[str, int] = {}
    out = []
    for example in examples:
        count = seen.get(example.id, 0)
        seen[example.id] = count + 1
        out.append(replace(example, id=f"{example.id}#{count}") if count else example)
    return out


def _questions(content: Mapping[str, Any], path: Path) -> Iterator[tuple[SpanExample, bool]]:
    """Each question, and whether the file says what its answer is."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            for qa in paragraph["qas"]:
                given = [
                    (str(answer["text"]), int(answer["answer_start"]))
                    for answer in qa.get("answers") or ()
                ]
                # Some files write blank text for no answer, which nothing could ever be equal to.
                answers = [(text, start) for text, start in given if text.strip()]
                blank = bool(given) and not answers
                if not isinstance(qa.get("is_impossible", False), bool):
                    raise _LayoutError(
                        f"is_impossible of question {qa['id']!r} is neither true nor false"
                    )
                unanswered = "answers" in qa and not answers
                impossible = blank or bool(qa.get("is_impossible", unanswered))
                if not isinstance(context, str) or not isinstance(qa["question"], str):
                    raise _LayoutError(f"context or question of {qa['id']!r} is no text")
                if impossible and answers:
                    raise _LayoutError(f"question {qa['id']!r} is impossible, and has answers")
                example = span_example(
                    str(qa["id"]),
                    qa["question"],
                    context,
                    () if impossible else answers,
                    impossible,
                    f"{path}, question {qa['id']!r}",
                )
                yield example, bool(given) or bool(qa.get("is_impossible"))


def _located(context: str, text: str, start: int) -> int:
    """Where the text lies: at the start, else at its nearest occurrence, else nowhere."""
    if text and context[start : start + len(text)] == text and start >= 0:
        return start
    if not text:
        return NOT_FOUND
    there = [found.start() for found in re.finditer(re.escape(text), context)]
    whole = [place for place in there if _is_whole(context, place, place + len(text))]
    return min(whole or there, key=lambda place: abs(place - start), default=NOT_FOUND)


def _is_whole(context: str, start: int, end: int) -> bool:
    """Whether a span begins and ends no word in its middle."""
    before, after = context[start - 1 : start], context[end : end + 1]
    inside = (before.isalnum() and context[start].isalnum()) or (
        after.isalnum() and context[end - 1].isalnum()
    )
    return not inside

"""What is to be predicted, read a line or a row at a time: a file may be of any size."""

from __future__ import annotations

import csv
import itertools
import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from kdnas.errors import TaskDataError, some_of, unknown_name
from kdnas.evaluation.data.converting import example_id
from kdnas.evaluation.tasks.examples import (
    ID_COLUMNS,
    Example,
    SpanExample,
    TaggedExample,
    TextExample,
)

FORMATS = ("txt", "csv", "tsv", "jsonl", "conll", "squad")
_BY_ENDING = {
    ".txt": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".conll": "conll",
    ".json": "squad",
}
TEXT_NAMES = ("text", "sentence", "sentence1", "question", "question1", "premise")
PAIR_NAMES = ("pair", "text2", "sentence2", "context", "question2", "hypothesis")
PAIR_BY_OPTIONS = "--pair, or in a column of the file (--pair-column)"
"""How second texts are given to the command."""
MOST_OF_A_TEXT = 1 << 20
"""Characters: a tokenizer takes some 60 times the memory, and a model reads a few thousand."""
MOST_OF_A_LINE = 1 << 24
"""Characters of a row with all its columns."""
MOST_OF_SQUAD = 1 << 28
"""Characters of a file in the layout of SQuAD, whose own has an eighth of it."""
UNKNOWN = "O"
"""Tag of a word whose tag is not known yet."""
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Source:
    """How a file is read.

    Attributes:
        kind: what is predicted.
        format: one of :data:`FORMATS`.
        text: column of the text or question; None looks for a usual name.
        pair: column of the second text or the context; likewise, and it may be absent.
    """

    kind: str
    format: str
    text: str | None = None
    pair: str | None = None


def format_of(path: str, kind: str, wanted: str | None) -> str:
    """Say how a file is laid out: as asked, else by its ending, else a text a line.

    Args:
        path: of the file; ``-`` is standard input.
        kind: what is predicted; words in columns end in ``.txt`` as well.
        wanted: by the user.

    Raises:
        TaskDataError: an unknown format, or one that does not suit what is predicted.
    """
    if wanted is not None and wanted not in FORMATS:
        raise TaskDataError(unknown_name("format", wanted, FORMATS))
    found = wanted or _BY_ENDING.get(Path(path).suffix.lower(), "txt")
    if kind == "span" and found in ("txt", "conll"):
        raise TaskDataError(
            f"questions need a context each, which {path} in the format {found} cannot give; give "
            "SQuAD's JSON, or CSV, TSV or JSONL with the columns question and context"
        )
    if (found == "squad" and kind != "span") or (found == "conll" and kind != "tagging"):
        raise TaskDataError(
            f"the format {found} is not for {kind}; give txt, csv, tsv or jsonl with --format"
        )
    return found


def one_example(kind: str, text: str, pair: str | None) -> Example:
    """Make an example of what stands on the command line.

    Raises:
        TaskDataError: a question without a context.
    """
    return example_of(kind, "1", text, pair, "the command line")


def read_examples(source: Source, stream: TextIO, name: str) -> Iterator[Example]:
    """Read examples as they come.

    Args:
        source: how the file is read.
        stream: the open file.
        name: of the file, for messages.

    Raises:
        TaskDataError: says which line is wrong, and how.
    """
    lines = _lines(stream, name)
    try:
        if source.format == "squad":
            yield from _squad(stream, name)
        elif source.format == "conll":
            yield from _columns(lines)
        elif source.format == "txt":
            for number, line in enumerate(lines, 1):
                text = line.rstrip("\r\n")
                yield example_of(source.kind, str(number), text, None, f"{name}, line {number}")
        else:
            yield from _rows(source, lines, name)
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{name} is not UTF-8 ({error.reason}); convert it to UTF-8") from None


def _lines(stream: TextIO, name: str) -> Iterator[str]:
    """Lines as they come, up to a bound: there may be no end to one."""
    for number in itertools.count(1):
        line = stream.readline(MOST_OF_A_LINE + 1)
        if len(line) > MOST_OF_A_LINE:
            raise TaskDataError(
                f"{name}, line {number} has more than {MOST_OF_A_LINE} characters without an end; "
                "check the file"
            )
        if not line:
            return
        yield line


def _rows(source: Source, lines: Iterator[str], name: str) -> Iterator[Example]:
    text, pair = source.text, source.pair
    for number, row in _records(source.format, lines, name):
        where = f"{name}, row {number}"
        if text is None or text not in row:
            text = _column(row, (text,) if text else TEXT_NAMES) or text
        if text is None or text not in row:
            raise TaskDataError(
                f"{where} has no column {text or 'text'!r}; there are {some_of(row)}: "
                "name one with --text-column"
            )
        if pair is None:
            pair = _column(row, [name for name in PAIR_NAMES if name != text.lower()]) or ""
        elif pair and pair not in row:
            pair = _column(row, (pair,)) or pair
        if pair and pair not in row:
            raise TaskDataError(
                f"{where} has no column {pair!r}; there are {some_of(row)}: name one "
                "with --pair-column"
            )
        second = row[pair] if pair else None
        named = _column(row, [name for name in ID_COLUMNS if name not in (text, pair)])
        id_ = None if named is None else example_id(row[named])
        yield example_of(source.kind, id_ or str(number), row[text], second, where)


def _column(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the first of some columns that is there, whatever its case, as it is written there."""
    there = {str(key).lower(): key for key in row}
    return next((there[name.lower()] for name in names if name.lower() in there), None)


def _records(
    format_: str, lines: Iterator[str], name: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if format_ == "jsonl":
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise TaskDataError(
                    f"{name}, line {number} is not JSON ({error}); write an object a line"
                ) from None
            if not isinstance(row, dict):
                raise TaskDataError(f"{name}, line {number} is no object; write an object a line")
            yield number, row
        return
    options: dict[str, Any] = (
        {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if format_ == "tsv" else {"strict": True}
    )
    try:
        for number, row in enumerate(csv.DictReader(lines, **options), 1):
            if None in row or None in row.values():
                raise TaskDataError(
                    f"{name}, row {number} has not as many cells as the header; mend it"
                )
            yield number, row
    except csv.Error as error:
        raise TaskDataError(f"{name} is no {format_.upper()} ({error}); check the file") from None


def _columns(stream: Iterable[str]) -> Iterator[TaggedExample]:
    """Read a word a line, in the first column, with blank lines between sentences."""
    words: list[str] = []
    count = 0
    for line in stream:
        if line.strip() and not line.startswith("-DOCSTART-"):
            words.append((line.split("\t") if "\t" in line else line.split())[0].strip())
        elif words:
            count += 1
            yield _tagged(str(count), words)
            words = []
    if words:
        yield _tagged(str(count + 1), words)


def _squad(stream: TextIO, name: str) -> Iterator[SpanExample]:
    """Read SQuAD's JSON, which is one object and so is in memory as a whole."""
    try:
        text = stream.read(MOST_OF_SQUAD + 1)
        if len(text) > MOST_OF_SQUAD:
            raise TaskDataError(
                f"{name} has more than {MOST_OF_SQUAD >> 20} MiB, of an object that is read whole; "
                "cut it into several"
            )
        content = json.loads(text)
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    yield _span(str(qa["id"]), str(qa["question"]), str(paragraph["context"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TaskDataError(
            f"{name} is not in the layout of SQuAD ({error!r}); it needs data, paragraphs, "
            "context, qas, id and question"
        ) from None


def example_of(
    kind: str, id_: str, text: Any, pair: Any, where: str, pair_by: str = PAIR_BY_OPTIONS
) -> Example:
    """Make an example without an answer.

    Args:
        kind: what is predicted.
        id_: of the example.
        text: a text or a question; of a tagging task also a list of words.
        pair: second text, or context of a question.
        where: it stands, for messages.
        pair_by: how who asks gives second texts, for messages.

    Raises:
        TaskDataError: something else than a text, or a question without a context.
    """
    if kind == "tagging":
        return _tagged(id_, _words(text))
    if not isinstance(text, str) or not (pair is None or isinstance(pair, str)):
        raise TaskDataError(
            f"{where} has {reprlib.repr(text)} in the place of a text; write a text there"
        )
    if max(len(text), len(pair or "")) > MOST_OF_A_TEXT:
        raise TaskDataError(
            f"{where} has a text of more than {MOST_OF_A_TEXT} characters; give a part of it"
        )
    if kind == "span":
        if pair is None:
            raise TaskDataError(f"{where} has a question without a context; give it with {pair_by}")
        return _span(id_, text, pair)
    return TextExample(id_, text, pair, None)


def _words(text: Any) -> list[str]:
    """Return the words of a list as they are, and of a text its words and punctuation marks."""
    return [str(word) for word in text] if isinstance(text, list) else _WORDS.findall(str(text))


def _tagged(id_: str, words: list[str]) -> TaggedExample:
    return TaggedExample(id_, tuple(words), (UNKNOWN,) * len(words))


def _span(id_: str, question: str, context: str) -> SpanExample:
    return SpanExample(id_, question, context, (), (), impossible=False)

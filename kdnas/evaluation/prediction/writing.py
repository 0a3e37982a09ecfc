"""Answers as files: JSON, tables that read back, or lines for a person."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, TextIO

from kdnas.errors import RequestError, unknown_name
from kdnas.evaluation.prediction.predictor import Answer
from kdnas.evaluation.tasks.examples import TaggedExample

Write = Callable[[Iterable[Answer], TextIO], int]
"""Writes answers as they come, and says how many there were."""

PROBABILITY_OF: Final = "probability_of_"
"""Begins the name of a label's column."""
SEVERAL: Final = "|"
"""Between the labels of a text that may have several."""


def writer_for(path: Path) -> Write:
    """Return how answers are written into a file, by its ending.

    Raises:
        RequestError: it ends like something that is not written here.
    """
    ending = path.suffix.lower()
    if ending not in _BY_ENDING:
        raise RequestError(unknown_name("file ending", ending, filter(None, _BY_ENDING)))
    return _BY_ENDING[ending]


def write_lines(answers: Iterable[Answer], stream: TextIO) -> int:
    """Write a line for a person each; of tags a word a line, and blank lines between sentences."""
    return _write((answer.to_text() for answer in answers), stream)


def write_json_lines(answers: Iterable[Answer], stream: TextIO) -> int:
    """Write a JSON object a line."""
    return _write((_json(answer) for answer in answers), stream)


def _write(lines: Iterable[str], stream: TextIO) -> int:
    count = 0
    for line in lines:
        print(line, file=stream, flush=stream is sys.stdout)
        count += 1
    return count


def _json(answer: Answer) -> str:
    return json.dumps(answer.to_json(), ensure_ascii=False)


def _write_json(answers: Iterable[Answer], stream: TextIO) -> int:
    """Write a list of JSON objects."""
    count = 0
    for count, answer in enumerate(answers, 1):
        stream.write(f"{'[' if count == 1 else ','}\n{_json(answer)}")
    stream.write("\n]\n" if count else "[]\n")
    return count


def _write_csv(answers: Iterable[Answer], stream: TextIO) -> int:
    """Write a row an answer below a header."""
    rows = csv.writer(stream, lineterminator="\n")
    return _write_table(answers, lambda cells: rows.writerow(cells))


def _write_tsv(answers: Iterable[Answer], stream: TextIO) -> int:
    """Write a row an answer below a header; in texts there are blanks for tabs and line ends."""

    def write(cells: Iterable[str]) -> None:
        stream.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")

    return _write_table(answers, write)


def _write_table(answers: Iterable[Answer], write: Callable[[list[str]], Any]) -> int:
    waiting = iter(answers)
    first = next(waiting, None)
    if first is None:
        return 0
    write(list(next(_rows(first), {})))
    count = 0
    for answer in chain([first], waiting):
        for row in _rows(answer):
            write([str(value) for value in row.values()])
        count += 1
    return count


def _rows(answer: Answer) -> Iterator[Mapping[str, Any]]:
    """The rows of an answer, by column: one, or one a word."""
    example = answer.example
    if isinstance(example, TaggedExample) and isinstance(answer.value, tuple):
        for word, tag in zip(example.tokens, answer.value, strict=True):
            yield {"id": example.id, "word": word, "prediction": tag}
        return
    values = answer.to_json()
    shares = values.pop("probabilities", {})
    columns = {f"{PROBABILITY_OF}{label}": shares[label] for label in sorted(shares)}
    if isinstance(answer.value, tuple):
        values["prediction"] = SEVERAL.join(answer.value)
    yield {**values, **columns}


_BY_ENDING: Mapping[str, Write] = {
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".jsonl": write_json_lines,
    ".ndjson": write_json_lines,
    ".json": _write_json,
    ".txt": write_lines,
    ".conll": write_lines,
    "": write_lines,
}

"""From rows, as files and data sets hold them, to examples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.column_file import DOCUMENT_MARK
from kdnas.evaluation.data.files.tables import MISSING, Row, class_name
from kdnas.evaluation.data.files.tag_schemes import scheme_of
from kdnas.evaluation.data.several_labels import labels_of
from kdnas.evaluation.tasks.examples import Example, TaggedExample, TextExample
from kdnas.evaluation.tasks.task import Task

# Spellings of one class that published files of a task use beside the usual one.
ALIASES = {"contradictory": "contradiction"}
UNKNOWN_LABELS = {"", "-", "-1"}
_WHOLE = re.compile(r"-?[0-9]{1,18}")  # isdigit takes digits that int does not read
_WRITTEN = re.compile(r"""\[\s*(['"].*['"]|[\d\s,.-]+)?\s*\]|\{\s*['"].*\}""", re.DOTALL)
"""Lists and objects that are written out in a cell."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Examples of a file or data set, by language where it names languages, and what was left out.

    Attributes:
        examples: language, or None where there is none → labelled examples.
        notes: a sentence each.
        about: how the file was understood, in words.
        columns: of words and tags, where it is a file of columns.
        lacking: why there is no example, in words.
    """

    examples: Mapping[str | None, Sequence[Example]]
    notes: tuple[str, ...] = ()
    about: str = ""
    columns: tuple[int, int] | None = None
    lacking: str = ""

    def __len__(self) -> int:
        return sum(len(examples) for examples in self.examples.values())


def from_rows(task: Task, rows: Iterable[Row], name: str) -> Converted:
    """Examples of a classification, regression or tagging task.

    Rows without a label are left out; a file that has none at all gives no example. Examples are
    called as the file calls them, if it has a distinct name for each row of a language, otherwise
    by the number of their row.

    Args:
        task: says what a label is.
        rows: as read.
        name: of the file or data set, for notes.

    Raises:
        TaskDataError: a label is unknown, or a text is missing; names file and line.
    """
    by_language: dict[str | None, list[Example]] = {}
    unlabelled = 0
    rows = list(rows)
    if task.kind == "multilabel":
        found = labels_of(rows)
        rows = [replace(row, label=labels) for row, labels in zip(rows, found, strict=True)]
    for row, id_ in _with_ids(task, rows):
        examples = by_language.setdefault(row.language, [])
        example = _example(task, row, id_)
        if example is None:
            unlabelled += 1
        else:
            examples.append(example)
    kept = {language: examples for language, examples in by_language.items() if examples}
    blank = _blank_words(rows) if task.kind == "tagging" else 0
    if task.kind == "tagging":
        kept = in_iob2(kept)
    rows_left = f"{unlabelled} row{'' if unlabelled == 1 else 's'}"
    notes = [f"{rows_left} of {name} without a label left out"] if unlabelled and kept else []
    if blank:
        notes.append(f"{blank} blank words of {name} are left out")
    return Converted(kept, tuple(notes))


def _blank_words(rows: Iterable[Row]) -> int:
    """How many words of rows are blank; of lists that are none it says nothing."""
    lists = (row.text for row in rows if isinstance(row.text, list | tuple))
    return sum(isinstance(word, str) and not word.strip() for words in lists for word in words)


def _with_ids(task: Task, rows: Sequence[Row]) -> Iterator[tuple[Row, str]]:
    """Rows with the names of their examples."""
    own = [(row.language, example_id(row.id)) for row in rows]
    # Parallel files are lined up by the numbers of rows, which those without a label have as well.
    if not task.parallel and all(id_ for _, id_ in own) and len(set(own)) == len(own):
        yield from zip(rows, (str(id_) for _, id_ in own), strict=True)
        return
    read: Counter[str | None] = Counter()
    for row in rows:
        read[row.language] += 1
        yield row, str(read[row.language])


def example_id(value: Any) -> str | None:
    """Return the name that a cell gives to an example; None where it is blank."""
    return None if value is None or isinstance(value, list | dict) else str(value).strip() or None


def in_iob2(examples: Mapping[str | None, list[Example]]) -> dict[str | None, list[Example]]:
    """Write the spans of all sentences in IOB2, by the scheme that their tags follow together.

    Tags that follow none stay as they are.
    """
    tagged = [one for part in examples.values() for one in part if isinstance(one, TaggedExample)]
    scheme = scheme_of({tag for one in tagged for tag in one.tags})
    if scheme is None:
        return dict(examples)
    return {
        language: [
            replace(one, tags=scheme.to_iob2(one.tags)) if isinstance(one, TaggedExample) else one
            for one in part
        ]
        for language, part in examples.items()
    }


def found_labels(task: Task, examples: Iterable[Example]) -> tuple[str, ...] | None:
    """Class names or tags in the order of a classifier's outputs.

    Numbers are in their order, other names in the alphabet's; of tags ``O`` is first, then those
    of each type.
    """
    if task.kind in ("classification", "multilabel"):
        if task.labels is not None:
            return task.labels
        names = {name for e in examples if isinstance(e, TextExample) for name in e.classes}
        numeric = all(map(_WHOLE.fullmatch, names))
        return tuple(sorted(names, key=(lambda n: (int(n), n)) if numeric else (lambda n: (0, n))))
    if task.kind == "tagging":
        tags = {tag for e in examples if isinstance(e, TaggedExample) for tag in e.tags}
        return tuple(sorted(tags, key=lambda tag: (tag != "O", tag.partition("-")[2], tag)))
    return None


def _example(task: Task, row: Row, id_: str) -> Example | None:
    if task.kind == "tagging":
        return _tagged(row, id_)
    text = _text(row, row.text)
    pair = None if row.pair is None else _text(row, row.pair)
    label = row.label if task.kind == "multilabel" else _one_label(task, row)
    return None if label is None else TextExample(id_, text, pair, label, row.where)


def _one_label(task: Task, row: Row) -> str | float | None:
    return _number(row) if task.kind == "regression" else _class(task, row)


def _text(row: Row, value: Any) -> str:
    if value is None:
        raise TaskDataError(
            f"{row.where} holds nothing where a text belongs; write one, or leave the row out"
        )
    if not isinstance(value, str):
        raise TaskDataError(
            f"{row.where} holds a {type(value).__name__} instead of a text; check the column"
        )
    return value.strip()


def _tagged(row: Row, id_: str) -> TaggedExample | None:
    words, tags = row.text, row.label
    if tags is None:
        return None
    for name, values in (("words", words), ("tags", tags)):
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise TaskDataError(
                f"{row.where} holds a {type(values).__name__} instead of a list of {name}; write "
                "lists of words and tags in JSON Lines or Parquet"
            )
    if len(words) != len(tags):
        raise TaskDataError(f"{row.where} has {len(words)} words and {len(tags)} tags; mend it")
    for name, values in (("word", words), ("tag", tags)):
        strange = next((v for v in values if not isinstance(v, str | int | float)), words)
        if strange is not words:
            raise TaskDataError(
                f"{row.where} has {strange!r} where a {name} belongs; write lists of texts"
            )
    kept = [(str(w), str(t)) for w, t in zip(words, tags, strict=True) if str(w).strip()]
    if not kept or kept[0][0].startswith(DOCUMENT_MARK):
        return None
    words, tags = zip(*kept, strict=True)
    return TaggedExample(id_, words, tags, row.where)


def _number(row: Row) -> float | None:
    if row.label is None or str(row.label).strip().lower() in MISSING | {""}:
        return None
    try:
        is_odd = isinstance(row.label, bool) or "_" in str(row.label)
        value = math.nan if is_odd else float(row.label)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise TaskDataError(
            f"{row.where} has the score {row.label!r}; write a number, with a point such as 0.5"
        )
    return value


def _class(task: Task, row: Row) -> str | None:
    if row.label is None:
        return None
    if isinstance(row.label, list | tuple | dict):
        raise TaskDataError(
            f"{row.where} holds a {type(row.label).__name__} where a label belongs; where a text "
            "may have several labels, or none, take `own.kind: multilabel`"
        )
    if isinstance(row.label, float) and math.isnan(row.label):
        return None  # as pandas and json.dumps write that there is none
    name = class_name(row.label)
    if task.labels is None:
        if name.startswith('{"ImportId"'):
            raise TaskDataError(
                f"{row.where} is a header of Qualtrics; take out the two lines below the first"
            )
        if _WRITTEN.fullmatch(name):
            raise TaskDataError(
                f"{row.where} holds {name!r} where a label belongs; where a text may have "
                "several labels, or none, take `own.kind: multilabel`"
            )
        return name or None
    if name in task.labels:
        return name
    lower = ALIASES.get(name.lower(), name.lower())
    if lower in UNKNOWN_LABELS:
        return None
    for label in task.labels:
        if label.lower() == lower:
            return label
    if _WHOLE.fullmatch(name) and 0 <= int(name) < len(task.labels):
        return task.labels[int(name)]
    raise TaskDataError(
        f"{row.where} has the label {name!r}, which {task.name} does not know; its labels are "
        f"{', '.join(task.labels)}; check that this is a file of {task.name}"
    )

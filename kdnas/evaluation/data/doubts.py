"""What of a user's data may be meant otherwise, or cannot be meant: refused, or told."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.tables import MISSING
from kdnas.evaluation.data.files.tag_schemes import is_span_scheme
from kdnas.evaluation.data.several_labels import MARKS
from kdnas.evaluation.tasks.examples import (
    Example,
    TaggedExample,
    TextExample,
    places,
)
from kdnas.evaluation.tasks.task import Task
from kdnas.specs.evaluation import OWN_SUITE

MOST_CLASSES = 20
"""Of a user's task these are always believed; more, if there are two examples of each."""
USUAL_EXAMPLES = 10
"""Of a class on average, from which on one with a single example may be a mistake."""
_MOST_NAMED = 5
_ESCAPED = re.compile(r"\\[nrt]")
"""Ends of lines and tabs as clients of databases write them: a backslash and a letter."""
_BROKEN = re.compile("\ufffd|Ã[\x80-\xbf]|â€")
"""What UTF-8 becomes that was read as something else."""
_ALIKE = str.maketrans("يكى", "یکی")
"""Letters of Arabic keyboards where Persian ones look the same."""


def new_classes(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[str]:
    """Say how many scored examples have a class that nothing in training has.

    Raises:
        TaskDataError: all have.
    """
    known = {name for e in train for name in _names(e)}
    new = [e for e in scored if not known.issuperset(_names(e))]
    if not new:
        return []
    strange = {name for e in new for name in _names(e)} - known
    there = {name for e in scored for name in _names(e)}
    if known and len(there) > 1 and not known & there:
        is_number = all(re.fullmatch(r"[-+.\d]+", name) for name in there)
        numbers = ", or give `own.kind: regression` for numbers" if is_number else ""
        raise TaskDataError(
            f"no scored example of {task.name} has a class or a type of span that is learned: "
            f"there are {', '.join(sorted(there)[:_MOST_NAMED])}{places(scored)}, and learned "
            f"are {', '.join(sorted(known)[:_MOST_NAMED])}{places(train)}; write them alike"
            f"{numbers}"
        )
    names = ", ".join(sorted(strange)[:_MOST_NAMED])
    what = "a type of span" if isinstance(new[0], TaggedExample) else "a class"
    return [
        f"{len(new)} of {len(scored)} scored examples have {what} that no training example has "
        f"({names})"
    ]


def _names(example: Example) -> Collection[str]:
    """Classes of a text, or types of spans."""
    if isinstance(example, TaggedExample):
        return {tag[2:] for tag in example.tags if tag.startswith("B-")}
    known = isinstance(example, TextExample) and isinstance(example.label, str | tuple)
    return example.classes if known and isinstance(example, TextExample) else ()


def doubtful(task: Task, labels: tuple[str, ...] | None, examples: Sequence[Example]) -> list[str]:
    """Say what of a user's table may be meant otherwise: its labels, and blank texts."""
    if task.suite != OWN_SUITE:
        return []
    notes: list[str] = []
    texts = [e for e in examples if isinstance(e, TextExample)]
    blank = sum(not e.text or e.pair == "" for e in texts)
    if blank:
        notes.append(f"{blank} of {len(texts)} examples have a blank text")
    escaped = [e for e in texts if _ESCAPED.search(e.text) or _ESCAPED.search(e.pair or "")]
    if escaped:
        notes.append(
            f"{len(escaped)} of {len(texts)} examples{places(escaped)} have \\n, \\r or \\t as two "
            "characters, which are taken as they are"
        )
    broken = [e for e in texts if _BROKEN.search(e.text) or _BROKEN.search(e.pair or "")]
    if broken:
        notes.append(
            f"{len(broken)} of {len(texts)} examples{places(broken)} hold what is left of letters "
            "that were read in a wrong encoding, such as Ã© or \ufffd"
        )
    if labels is None or task.kind == "tagging":
        return notes
    if task.kind == "classification":
        notes += _contradicting(texts) + _several_in_a_cell(labels, texts)
    in_cells = "," not in task.layout.columns[0].label
    if task.kind == "multilabel" and in_cells and all(len(e.classes) < 2 for e in texts):
        marks = " ".join(MARKS)
        notes.append(f"no text has several labels; what parts those of a cell is one of {marks}")
    counts = Counter(name for e in texts for name in e.classes)
    alone = sorted(name for name, count in counts.items() if count == 1)
    if alone and len(texts) >= USUAL_EXAMPLES * len(labels):
        names = ", ".join(map(repr, alone[:_MOST_NAMED]))
        classes = "1 class has" if len(alone) == 1 else f"{len(alone)} classes have"
        notes.append(f"{classes} a single example ({names}), as a line that is no example has")
    has_names = any(not re.fullmatch(r"[-+.\d]+", name) for name in labels)
    missing = [n for n in labels if n.lower() in MISSING or (n == "-1" and has_names)]
    if missing:
        count = sum(not set(missing).isdisjoint(e.classes) for e in texts)
        names = " or ".join(map(repr, missing))
        notes.append(
            f"{count} examples have the class {names}, which looks as if they had none; leave the "
            "cell blank if so"
        )
    return notes


def _several_in_a_cell(labels: Sequence[str], texts: Sequence[TextExample]) -> list[str]:
    """Say which classes are several others with a mark between them."""
    known = set(labels)
    for name in labels:
        parts = [[one.strip() for one in name.split(mark)] for mark in MARKS if mark in name]
        if any(len(of) > 1 and known.issuperset(of) for of in parts):
            there = [e for e in texts if e.label == name]
            return [
                f"the class {name!r}{places(there)} is several others; take `own.kind: multilabel` "
                "if a text may have several"
            ]
    return []


def _contradicting(texts: Sequence[TextExample]) -> list[str]:
    """Say how many texts come with different classes."""
    first: dict[tuple[str, str | None], TextExample] = {}
    other: dict[tuple[str, str | None], TextExample] = {}
    for e in texts:
        if first.setdefault((e.text, e.pair), e).label != e.label:
            other.setdefault((e.text, e.pair), e)
    if not other:
        return []
    what = "1 text comes" if len(other) == 1 else f"{len(other)} texts come"
    return [f"{what} with different classes{places(other.values())}"]


def learned_from(train: Sequence[Example], scored: Sequence[Example]) -> list[str]:
    """Say how many texts that are scored are learned from as well."""
    learned = {(e.text, e.pair) for e in train if isinstance(e, TextExample)}
    again = [e for e in scored if isinstance(e, TextExample) and (e.text, e.pair) in learned]
    if not again:
        return []
    verb = "is" if len(again) == 1 else "are"
    return [
        f"{len(again)} of {len(scored)} scored texts{places(again)} {verb} learned from as well"
    ]


def hardly_different(names: Iterable[str], what: str) -> list[str]:
    """Say which names may be the same but for a blank, a mark, a letter's case or its coding.

    Args:
        names: of classes or of types of spans.
        what: they are, in the plural.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_plain(name), []).append(name)
    return [
        f"the {what} {' and '.join(map(ascii, same))} are hardly different, and are taken for "
        "different ones; write one alike everywhere if they are the same"
        for same in alike.values()
        if len(same) > 1
    ]


def _plain(name: str) -> str:
    """A class without case, marks and what is not seen; as a number if it is one (``0.0``)."""
    try:
        return f"{float(name):g}"
    except ValueError:
        letters = unicodedata.normalize("NFKC", name).casefold()
        seen = (c for c in letters.translate(_ALIKE) if unicodedata.category(c) not in ("Cf", "Mn"))
        return re.sub(r"[\s_\-‐‑‒–—−'’‘`\"“”]+|[.!]+$", "", "".join(seen)) or name


def check_numbers(task: Task, examples: Sequence[Example]) -> None:
    """Refuse numbers of a user's that are all the same: nothing goes with them."""
    if task.kind != "regression" or task.suite != OWN_SUITE or len(examples) < 2:
        return
    numbers = {e.number for e in examples if isinstance(e, TextExample)}
    if len(numbers) == 1:
        raise TaskDataError(
            f"all {len(examples)} examples of {task.name}{places(examples)} have the number "
            f"{numbers.pop():g}; give different ones, or name another column as `own.label`"
        )


def single_types(task: Task, examples: Sequence[Example]) -> list[str]:
    """Say which types of spans have a single example, where others have many: a slip may be one."""
    if task.kind != "tagging":
        return []
    tagged = [e for e in examples if isinstance(e, TaggedExample)]
    counts = Counter(tag[2:] for e in tagged for tag in e.tags if tag.startswith("B-"))
    alone = sorted(name for name, count in counts.items() if count == 1)
    if not alone or counts.total() < USUAL_EXAMPLES * len(counts):
        return []
    names = ", ".join(map(repr, alone[:_MOST_NAMED]))
    there = (e for e in tagged if f"B-{alone[0]}" in e.tags)
    what = "1 type of span has" if len(alone) == 1 else f"{len(alone)} types of spans have"
    return [f"{what} a single example ({names}){places(there)}"]


def check_spans(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[str]:
    """Say that no word of what is scored is in a span, of a task whose spans are scored.

    Raises:
        TaskDataError: none of what is learned from is.
    """
    if task.kind != "tagging" or task.metrics == ("accuracy",):
        return []
    if train and not any(map(_names, train)):
        raise TaskDataError(
            f"no word of the {len(train)} sentences of {task.name}{places(train)}, which are "
            "learned from, is in a span; name another column as `columns.tag`"
        )
    if any(map(_names, scored)):
        return []
    return ["no scored word is in a span, so that there is nothing to find: F1 is 0 for any model"]


def _no_spans(task: Task, tags: Sequence[str], examples: Sequence[Example]) -> TaskDataError:
    """What to tell of tags that mark no spans."""
    others = [tag for tag in tags if not is_span_scheme([tag])]
    there = (e for e in examples if isinstance(e, TaggedExample) and others[0] in e.tags)
    said = f"of {task.name}, such as {others[0]!r}{places(there)}"
    if all(len(tag) > 1 and tag[0] == tag[-1] and tag[0] in "\"'" for tag in tags):
        return TaskDataError(f"the tags {said}, are in quotes, as CSV has them; call the file .csv")
    if 1 <= len(others) <= len(tags) // 3 and "O" in tags:
        usual = next(tag for tag in tags if tag != "O" and is_span_scheme([tag]))
        return TaskDataError(
            f"the tags {said}, stand where others such as O and {usual} do; mend the line"
        )
    if len(others) == 1 and "O" not in tags and len(tags) > 1:
        return TaskDataError(
            f"the only tag {said}, marks no span with B- and I-; write O for words outside of spans"
        )
    return TaskDataError(
        f"the tags {said}, mark no spans with B- and I-; score words with `suite: own`, "
        "`own.kind: tagging` and `own.metrics: accuracy`, or name another column as `columns.tag`"
    )


def check_labels(
    task: Task,
    labels: tuple[str, ...] | None,
    train: Sequence[Example],
    examples: Sequence[Example],
) -> None:
    """Refuse labels that cannot be what a user means by them.

    Args:
        task: that they are of.
        labels: of all examples; None of a task without any.
        train: what is learned from.
        examples: all of them.
    """
    if labels is None:
        return
    begin = places(examples)
    if task.kind == "tagging":
        if task.metrics != ("accuracy",) and all(label.isdigit() for label in labels):
            raise TaskDataError(
                f"the tags of {task.name}{begin} are numbers, such as "
                f"{', '.join(labels[:_MOST_NAMED])}; write the names that they stand for, such as "
                "B-PER, which the card of the data set lists"
            )
        if task.metrics != ("accuracy",) and not is_span_scheme(labels):
            raise _no_spans(task, labels, examples)
    elif task.suite != OWN_SUITE:
        return
    elif not labels:
        raise TaskDataError(
            f"no example of {task.name}{begin} has a label; name another column as `own.label`"
        )
    elif len(labels) < 2:
        raise TaskDataError(
            f"{task.name} has the only class {labels[0]!r}{begin}; give examples of at least two, "
            "or name another column as `own.label`"
        )
    elif len(labels) > max(MOST_CLASSES, len(train) // 2):
        numbers = "for numbers give `own.kind: regression`, or "
        if task.kind == "multilabel":
            numbers = ""
        raise TaskDataError(
            f"{task.name} has {len(labels)} classes, such as {labels[0]!r}, for {len(train)} "
            f"examples to learn from{places(train)}; {numbers}name another column as `own.label`"
        )

"""Words and tags in columns, as CoNLL's shared tasks keep them, and schemes of span tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.tables import read_text
from kdnas.evaluation.tasks.examples import TaggedExample
from kdnas.reach import ANYWHERE, Reach

DOCUMENT_MARK = "-DOCSTART-"
_COMMENT = re.compile(r"#\s+(id\b|sent_id\b|text\b|newdoc\b|newpar\b|global\.columns\b|doc\b)")
_SPAN_TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)


def read_columns(
    path: Path, language: str | None = None, reach: Reach = ANYWHERE
) -> list[TaggedExample] | None:
    """Read sentences: a word a line, its tag in the last column, blank lines between sentences.

    Columns are parted by tabs, or else by blanks; those between the first and the last are left
    out, as are document marks and comments. Tags become IOB2. A prefix ``en:`` before every word,
    as in the files of WikiANN, is taken off.

    Returns:
        The sentences, or None where the file has words without tags.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: there is no sentence, or only some lines have a tag.
    """
    sentences: list[list[tuple[str, str | None]]] = [[]]
    bare: int | None = None
    tagged = False
    for number, line in enumerate(read_text(path, reach).split("\n"), 1):
        if not line.strip():
            sentences.append([])
            continue
        if line.startswith(DOCUMENT_MARK) or _is_comment(line, sentences[-1]):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        word, tag = cells[0].strip(), cells[-1].strip() if len(cells) > 1 else None
        tagged, bare = tagged or tag is not None, bare or (number if tag is None else None)
        sentences[-1].append((word, tag))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise TaskDataError(f"{path} holds no sentence; write a word and its tag a line")
    if not tagged:
        return None
    if bare is not None:
        raise TaskDataError(f"{path}, line {bare} has no tag; write a word and its tag a line")
    prefix = f"{language}:"
    if language and all(word.startswith(prefix) for words in sentences for word, _ in words):
        sentences = [[(w.removeprefix(prefix), t) for w, t in words] for words in sentences]
    return [
        TaggedExample(str(n), tuple(w for w, _ in words), to_iob2([t or "O" for _, t in words]))
        for n, words in enumerate(sentences)
    ]


def is_span_scheme(tags: Iterable[str]) -> bool:
    """True if the tags mark spans (``O``, ``B-PER`` …), False if they are one a word, as in POS."""
    return all(tag == "O" or _SPAN_TAG.fullmatch(tag) for tag in tags)


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Write the spans of IOB1, IOB2, IOBES or BILOU tags in IOB2; other tags stay as they are.

    A span begins at B, S or U, and where an inside tag does not go on with the type before it.
    """
    if not is_span_scheme(tags):
        return tuple(tags)
    changed: list[str] = []
    open_type: str | None = None
    for tag in tags:
        match = _SPAN_TAG.fullmatch(tag)
        if match is None:
            changed.append(tag)
            open_type = None
            continue
        position, kind = match.groups()
        begins = position in "BSU" or open_type != kind
        changed.append(f"{'B' if begins else 'I'}-{kind}")
        open_type = None if position in "ESLU" else kind
    return tuple(changed)


def _is_comment(line: str, sentence: Sequence[object]) -> bool:
    """A comment stands before a sentence; a word may begin with ``#`` anywhere."""
    return not sentence and _COMMENT.match(line) is not None

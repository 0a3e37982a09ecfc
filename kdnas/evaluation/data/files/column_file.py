"""Files of words and tags in columns: their sentences, without what belongs to none of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.csv_rows import csv_rows, is_written_list
from kdnas.evaluation.data.files.opening import read_text, suffix_of
from kdnas.evaluation.data.files.tables import PART_COLUMNS
from kdnas.evaluation.data.files.tag_schemes import is_marked
from kdnas.evaluation.tasks.task import ColumnChoice, Columns
from kdnas.reach import ANYWHERE, Reach

DOCUMENT_MARK: Final = "-DOCSTART"
_COMMENT = re.compile(r"#\s*(id\b|sent_id\b|text\b|newdoc\b|newpar\b|doc\b|[\w.:-]+\s*=\s)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_JOINED = re.compile(r"\d+[-.]\d+")
"""CoNLL-U's numbers of tokens that are several words, and of words that are not written."""
_WORD_NAMES = frozenset({"word", "words", "token", "tokens", "form"})
_TAG_NAMES = frozenset(
    {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "iob", "bio", "ner_label"}
)
_SENTENCE_NAME = re.compile(r"sent(ence)?[\W_]*(id|idx|index|no|num|number|name|#)?")


class ColumnRow(NamedTuple):  # files have millions of them
    """A line of a file of columns, parted.

    Attributes:
        number: of the line, from 1 on.
        cells: of it.
    """

    number: int
    cells: tuple[str, ...]


class ColumnFile:
    """A file of columns.

    Columns are parted by tabs, or else by blanks; by commas or semicolons in CSV.

    Args:
        path: of it.
        names: of columns in a header, beside the usual ones.
        reach: how it is opened.

    Attributes:
        path: of it.
        notes: what was left out or parted, in words.
        sentences: rows of words, without header, comments, document marks, and numbers of words
            that are not written.
        named: columns of words and tags that a header names, from 1 on.
        named_sentence: column that a header says to name sentences, from 0 on.
        named_part: column that a header says to hold the part of a row.
        ids: columns that name sentences, from 0 on.
        has_numbers: whether the first column numbers the words.
        width: columns of the shortest row.
        widest: columns of the longest one.

    Raises:
        RequestError: it is out of reach.
        TaskDataError: it cannot be read, or holds no sentence.
    """

    def __init__(
        self, path: Path, names: Collection[Columns] = (), reach: Reach = ANYWHERE
    ) -> None:
        text = read_text(path, reach)
        if suffix_of(path) == ".csv":
            text = _with_tabs(path, text)
        if text.startswith("#FORMAT=WebAnno"):
            raise TaskDataError(
                f"{path} is in the format of WebAnno; export it from there as CoNLL 2002"
            )
        self.path = path
        self.names = names
        self.notes: list[str] = []
        self.named_sentence: int | None = None
        self.named_part: int | None = None
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1)]
        written = [line for _, line in lines if line.strip()]
        # Only blanks and tabs part words: others, as those in numbers of French, belong to them.
        self.tabs = 2 * sum("\t" in line for line in written) > len(written)
        self.sentences = list(self._sentences(lines))
        if not self.sentences:
            raise TaskDataError(f"{path} holds no sentence; write a word and its tag a line")
        self.named = self._take_header()
        self.ids = self._part_by_ids()
        self.has_numbers = self._leave_numbers()
        self.width = min(len(row.cells) for row in self.rows())
        self.widest = max(len(row.cells) for row in self.rows())

    def _sentences(self, lines: Sequence[tuple[int, str]]) -> Iterator[list[ColumnRow]]:
        """Rows of words between blank lines, without comments."""
        sentence: list[ColumnRow] = []
        found: list[list[ColumnRow]] = []
        for number, line in [*lines, (0, "")]:
            if not line.strip():  # of whatever blanks
                if sentence:
                    found.append(sentence)
                sentence = []
                continue
            if line.startswith(DOCUMENT_MARK):  # it parts sentences, with and without blank lines
                found += [sentence] if sentence else []
                sentence = []
                continue
            if _COMMENT.match(line) and (not sentence or (self.tabs and "\t" not in line)):
                continue
            sentence.append(ColumnRow(number, self._cells(line)))
        yield from self._without_comments(found)

    def _without_comments(self, sentences: list[list[ColumnRow]]) -> Iterator[list[ColumnRow]]:
        """Leave out first lines of sentences that begin with ``#`` and are no words.

        A word may begin with it, too: such a line is one if it is built as the others are.
        """
        sure = [
            row
            for sentence in sentences
            for place, row in enumerate(sentence)
            if place or not row.cells[0].startswith("#")
        ]
        numbered = bool(sure) and _are_numbers([row.cells[0] for row in sure])
        shapes = {len(row.cells) for row in sure}
        last = {row.cells[-1] for row in sure}

        def is_comment(row: ColumnRow) -> bool:
            if not row.cells[0].startswith("#"):
                return False
            if self.tabs and len(row.cells) > 1 and len(row.cells) in shapes and not numbered:
                return False
            *_, end = row.cells
            tagged = end in last or any(map(is_marked, row.cells[1:])) or len(row.cells) == 1
            return numbered or (bool(sure) and not (tagged and len(row.cells) in shapes))

        left_out = 0
        for sentence in sentences:
            start = 0
            while start < len(sentence) and is_comment(sentence[start]):
                start += 1
            left_out += sum(len(row.cells) in shapes for row in sentence[:start])
            if sentence[start:]:
                yield sentence[start:]
        if left_out:
            lines = "line" if left_out == 1 else "lines"
            self.notes.append(f"{left_out} {lines} of {self.path.name} with # left out as comments")

    def _cells(self, line: str) -> tuple[str, ...]:
        cells = line.split("\t") if self.tabs else re.split(r"[ \t]+", line.strip(" \t"))
        return tuple(cell.strip(" \t") for cell in cells)

    def rows(self) -> Iterator[ColumnRow]:
        """All rows, in order."""
        for sentence in self.sentences:
            yield from sentence

    @property
    def first(self) -> str:
        """The file and its first line with a word, for messages on all of it."""
        return f"{self.path}, line {self.sentences[0][0].number}"

    def _take_header(self) -> ColumnChoice:
        """Leave out a first line that names columns, and take the columns that it names."""
        first = self.sentences[0][0]
        names = [cell.lower() for cell in first.cells]
        words = _places(names, [c.text for c in self.names], _WORD_NAMES)
        tags = _places(names, [c.label for c in self.names], _TAG_NAMES)
        if not (words and tags):
            return ColumnChoice()
        kept = [[row for row in rows if row.cells != first.cells] for rows in self.sentences]
        again = sum(map(len, self.sentences)) - sum(map(len, kept)) - 1
        once_more = f", as {again} more like it" if again else ""
        self.notes.append(
            f"line {first.number} of {self.path.name} is a header, and left out{once_more}"
        )
        self.sentences = [sentence for sentence in kept if sentence]
        if not self.sentences:
            raise TaskDataError(f"{self.path} holds no sentence below its header")
        sentences = [name for name in names if _SENTENCE_NAME.fullmatch(name)]
        self.named_sentence = _first_of(names, sentences)
        self.named_part = _first_of(names, PART_COLUMNS)
        return ColumnChoice(words[0], tags[0] if len(tags) == 1 else None)

    def leave_out_first(self) -> None:
        """Take the first row for none."""
        kept = [self.sentences[0][1:], *self.sentences[1:]]
        self.sentences = [sentence for sentence in kept if sentence]

    def _part_by_ids(self) -> frozenset[int]:
        """Part the only sentence of a file where the name of the sentence changes.

        A column names sentences if its header says so, or if each of its values comes in one run,
        of two rows at least on average: words do not.

        Returns:
            The columns that name sentences, from 0 on.
        """
        width = min(len(row.cells) for row in self.rows())
        places = range(width) if self.named_sentence is None else (self.named_sentence,)
        found = frozenset(n for n in places if n < width and self._names_sentences(n))
        if found and len(self.sentences) == 1:
            by = self._with_documents(min(found), width)
            names = list(zip(*map(self._filled, by), strict=True))
            parted: list[list[ColumnRow]] = []
            for row, name, before in zip(self.sentences[0], names, [None, *names], strict=False):
                if name != before:
                    parted.append([])
                parted[-1].append(row)
            self.sentences = parted
            columns = (
                f"column {by[0] + 1}" if len(by) == 1 else f"columns {by[0] + 1} and {by[1] + 1}"
            )
            verb = "changes" if len(by) == 1 else "change"
            self.notes.append(f"sentences of {self.path.name} are parted where {columns} {verb}")
            found |= set(by)
        return found

    def _with_documents(self, place: int, width: int) -> list[int]:
        """A column of names of sentences, with that of documents if they begin anew in each.

        With the other column there are more runs of rows, each of names of its own.
        """
        runs, _ = self._runs([place])
        for other in range(width):
            if other == place or any(map(is_marked, set(self.column(other)))):
                continue
            more, different = self._runs([place, other])
            if runs < more == different <= sum(map(len, self.sentences)) / 2:
                return sorted([place, other])
        return [place]

    def _runs(self, places: Sequence[int]) -> tuple[int, int]:
        """How often the cells of columns change from row to row, and how many there are."""
        cells = list(zip(*map(self._filled, places), strict=True))
        return 1 + sum(a != b for a, b in pairwise(cells)), len(set(cells))

    def _filled(self, place: int) -> list[str]:
        """The cells of a column, blank ones as that above."""
        filled: list[str] = []
        for cell in self.column(place):
            filled.append(cell or (filled[-1] if filled else cell))
        return filled

    def _names_sentences(self, place: int) -> bool:
        if place == self.named_sentence:
            return True
        cells = self.column(place)
        if not all(cells) or any(is_marked(cell) for cell in set(cells)):
            return False
        runs = 1 + sum(a != b for a, b in pairwise(cells))
        if len(self.sentences) > 1:  # the same all along each sentence
            long = [{row.cells[place] for row in s} for s in self.sentences if len(s) > 1]
            return bool(long) and all(len(values) == 1 for values in long)
        return 1 < len(set(cells)) == runs <= len(cells) / 2

    def _leave_numbers(self) -> bool:
        """Say whether the first column numbers the words; rows that are no words are left out."""
        if min(len(row.cells) for row in self.rows()) < 2:
            return False
        if not _are_numbers([row.cells[0] for row in self.rows()]):
            return False
        kept = [[r for r in s if _NUMBER.fullmatch(r.cells[0])] for s in self.sentences]
        self.sentences = [sentence for sentence in kept if sentence]
        if len(self.sentences) == 1:
            self._part_where_numbers_begin()
        return True

    def _part_where_numbers_begin(self) -> None:
        """Part the only sentence of a file where the numbers of words begin anew."""
        parted: list[list[ColumnRow]] = []
        for row in self.sentences[0]:
            number = int(row.cells[0])
            if not parted or number <= int(parted[-1][-1].cells[0]):
                parted.append([])
            parted[-1].append(row)
        if len(parted) > 1:
            self.sentences = parted
            self.notes.append(
                f"sentences of {self.path.name} are parted where the numbers of words begin anew"
            )

    def column(self, place: int) -> list[str]:
        """The cells of a column, counted from 0; a negative one from the end."""
        return [row.cells[place] for row in self.rows()]


def _with_tabs(path: Path, text: str) -> str:
    """Lines of CSV with tabs between their cells, each in its place; cells are in one line."""
    lines: list[str] = []
    for number, cells in csv_rows(path, text, lambda names: len(names) > 1):
        if any(map(is_written_list, cells)):
            raise TaskDataError(
                f"{path}, line {number} has a list in a cell; write a word and its tag a line, or "
                "lists of words and tags in JSON Lines or Parquet"
            )
        if any("\n" in cell or "\r" in cell for cell in cells):
            raise TaskDataError(
                f"{path}, line {number} has a word of several lines, after a quote that is not "
                'meant as one; write a quote that is a word as """"'
            )
        lines += [""] * (number - 1 - len(lines))
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(lines)


def _places(names: Sequence[str], chosen: Collection[str], usual: Collection[str]) -> list[int]:
    """Columns from 1 on that are called as a user says, or else as is usual."""
    for known in ({name.lower() for name in chosen}, usual):
        found = [n for n, name in enumerate(names, 1) if name in known]
        if found:
            return found
    return []


def _first_of(names: Sequence[str], known: Collection[str]) -> int | None:
    """Where the first name is that is one of those known."""
    return next((n for n, name in enumerate(names) if name in known), None)


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether cells number words: each sentence anew, or all of them."""
    numbers = [cell for cell in cells if not _JOINED.fullmatch(cell)]
    if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
        return False
    counted = [int(number) for number in numbers]
    pairs = zip([0, *counted], counted, strict=False)
    return all(after in {0, 1, before + 1} for before, after in pairs)

"""Words and tags in columns, as CoNLL's shared tasks keep them: which column is what is found out.

People's files have columns of numbers before the words, parts of speech and chunks between, a
second layer of tags behind, and comments. What a column is, is told by what is in it, and never by
its place alone; where that leaves a choice, it is refused rather than made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.files.column_file import ColumnFile
from kdnas.evaluation.data.files.opening import suffix_of
from kdnas.evaluation.data.files.tag_schemes import TagScheme, is_marked, scheme_of
from kdnas.evaluation.tasks.examples import TaggedExample
from kdnas.evaluation.tasks.task import ColumnChoice, Columns
from kdnas.reach import ANYWHERE, Reach

MOST_WORDS: Final = 200
"""Of a file's only sentence; more are sentences with nothing between them."""
LONG_SENTENCE: Final = 40
"""Words of a file's only sentence that a reader is told of."""
LEAST_ROWS: Final = 4
"""Of a file whose first one may be a header that nobody knows."""
NEARLY: Final = 0.8
"""Share of a column's cells that are tags, from which on the others are mistakes."""
_LANGUAGE = re.compile(r"([a-z]{2,3}(?:-[a-z]+)?):")
_PLACE = re.compile(r"-?\d+(?:[-:., ]+\d+)*")
"""Where a word stands in its text or a recording, or how sure its tag is."""
_NO_TYPE = frozenset({"_", "-", "O", "o", ""})
RICHER: Final = 2
"""Times as many different cells a column of words has at most than the one that was taken."""
MANY: Final = 50
"""Rows of a file in which some word comes twice."""
BLANK_WORDS, SOME_BLANK_WORDS = 0.05, 10
"""Share and number of words that are blank, from which on they are meant so."""
_TAGS_OF_SEVERAL = re.compile(r"(?:O|[BIESLU]-\S+)(?:\s+(?:O|[BIESLU]-\S+))+")
_WITHIN = re.compile(r".*=(?:O|[BIESLU]-.+)")
"""A tag as one of several values, as NorNE has it in the last column of CoNLL-U."""
_TWO_TAGS = re.compile(r"[|,;/]\s*[BIESLU]-")
_ENGLISH_CHUNKS = "NP, VP, PP, ADVP, ADJP, SBAR, PRT, INTJ, CONJP, LST, UCP"
_GERMAN_CHUNKS = "NC, VC, PC, NX, VX, PX"
_CHUNKS = frozenset(f"{_ENGLISH_CHUNKS}, {_GERMAN_CHUNKS}".split(", "))
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The sentences of a file.

    Attributes:
        examples: of them.
        word: column of the words, from 1 on.
        tag: column of the tags.
        about: how the file was understood, in words.
        notes: what was left out or chosen.
        part_column: that says which part a sentence is of; empty where none does.
        said: by it, of each sentence.
    """

    examples: list[TaggedExample]
    word: int
    tag: int
    about: str
    notes: tuple[str, ...] = ()
    part_column: str = ""
    said: Sequence[str] = ()


def read_columns(
    path: Path,
    language: str | None = None,
    reach: Reach = ANYWHERE,
    choice: ColumnChoice = ColumnChoice(),
    names: Collection[Columns] = (),
) -> ReadColumns | None:
    """Read sentences: a word a line, blank lines between sentences.

    Columns are parted by tabs, or else by blanks; by commas or semicolons in CSV. The tags are in
    the column that holds tags of spans; of several that is not one of chunks, and the outer ones of
    nested spans. Tags become IOB2. Document marks, comments, and numbers of words are left out. A
    prefix ``en:`` before every word, as in the files of WikiANN, is taken off.

    Args:
        path: of the file.
        language: that it is in, where its name says so.
        reach: how it is opened.
        choice: columns to take, whatever is in them.
        names: of columns of words and tags that a header may have beside the usual ones.

    Returns:
        None where the file has words without tags.

    Raises:
        RequestError: the file is out of reach.
        TaskDataError: there is no sentence, only some lines have a tag, or it is not clear which
            column holds the tags; names file, line and option.
    """
    return _Finding(ColumnFile(path, names, reach)).read(language, choice)


class _Finding:
    """Which columns of a file hold its words and its tags.

    Args:
        file: of columns.
    """

    def __init__(self, file: ColumnFile) -> None:
        self.file = file
        self.path, self.first = file.path, file.first
        self.notes, self.width = file.notes, file.width

    def read(self, language: str | None, choice: ColumnChoice) -> ReadColumns | None:
        """Find the columns, and make examples of them."""
        for name, wanted in (("word", choice.word), ("tag", choice.tag)):
            if wanted is not None and wanted > self.file.widest:
                raise TaskDataError(
                    f"{self.first} has {self.file.widest} columns, not {wanted}; give another "
                    f"`columns.{name}`"
                )
        first = 1 if self.file.has_numbers else 0
        if choice.tag is None and choice.word is None and self.file.widest == first + 1:
            return None
        header = self.file.named
        wanted_tag, wanted_word = choice.tag or header.tag, choice.word or header.word
        if wanted_tag is not None and wanted_tag <= self.width:
            self._take_unknown_header([wanted_tag - 1])
        tag = self._tag_column(first) if wanted_tag is None else wanted_tag - 1
        word = self._word_column(first, tag) if wanted_word is None else wanted_word - 1
        if word == tag:
            raise TaskDataError(
                f"{self.first}: words and tags cannot both be in column {tag + 1}; give another "
                "`columns.word` or `columns.tag`"
            )
        self._leave_blanks(word)
        self._check(word, tag)
        tags = self.file.column(tag)
        scheme = scheme_of(set(tags))
        if scheme is not None and scheme.position == "alone":
            self._refuse_types_beside(word, tag)
        kinds = _types(tags)
        if kinds and kinds <= _CHUNKS:
            named = ", ".join(sorted(kinds)[:_SHOWN])
            self.notes.append(
                f"column {tag + 1} of {self.path.name} holds chunks of sentences, such as {named}, "
                "and no names"
            )
        words = self._words(word, language)
        examples, done = [], 0
        for number, sentence in enumerate(self.file.sentences, 1):
            end = done + len(sentence)
            own = tuple(tags[done:end]) if scheme is None else scheme.to_iob2(tags[done:end])
            where = f"{self.path}, line {sentence[0].number}"
            examples.append(TaggedExample(str(number), tuple(words[done:end]), own, where))
            done = end
        if len(examples) == 1 and done > MOST_WORDS:
            raise TaskDataError(
                f"{self.first} on holds one sentence of {done} words; part sentences by blank lines"
            )
        if len(examples) == 1 and done > LONG_SENTENCE:
            self.notes.append(
                f"{self.path.name} holds one sentence of {done} words; if it is several, part them "
                "by blank lines"
            )
        about, place = self._about(word, tag, scheme), self.file.named_part
        said = [] if place is None else [rows[0].cells[place] for rows in self.file.sentences]
        named = "" if place is None else str(place + 1)
        return ReadColumns(examples, word + 1, tag + 1, about, tuple(self.notes), named, said)

    def _about(self, word: int, tag: int, scheme: TagScheme | None) -> str:
        parted = "tabs" if self.file.tabs else "blanks"
        if suffix_of(self.path) == ".csv":
            parted = "delimiters of CSV"
        kind = "a tag a word" if scheme is None else scheme.name
        return (
            f"words in column {word + 1}, tags in column {tag + 1} ({kind}) of {self.width}, "
            f"parted by {parted}"
        )

    def _leave_blanks(self, word: int) -> None:
        """Leave out words that are blank, where there are many: blanks of a text in letters."""
        rows = [row for row in self.file.rows() if len(row.cells) > word]
        blank = sum(not row.cells[word] for row in rows)
        if blank < max(SOME_BLANK_WORDS, BLANK_WORDS * len(rows)):
            return
        kept = [
            [r for r in s if len(r.cells) <= word or r.cells[word]] for s in self.file.sentences
        ]
        self.file.sentences = [sentence for sentence in kept if sentence]
        self.notes.append(f"{blank} blank words of {self.path.name} are left out")

    def _check(self, word: int, tag: int) -> None:
        last = max(word, tag)
        for row in self.file.rows():
            if len(row.cells) > last and row.cells[word] and not row.cells[tag]:
                raise TaskDataError(
                    f"{self.path}, line {row.number} has no tag in column {tag + 1}; write O for a "
                    "word outside of spans"
                )
            if _TAGS_OF_SEVERAL.fullmatch(row.cells[tag] if len(row.cells) > last else ""):
                raise TaskDataError(
                    f"{self.path}, line {row.number} has {row.cells[tag]!r}, the tags of several "
                    f"words, in column {tag + 1}; write a word and its tag a line, or lists of "
                    "both in JSON Lines"
                )
            if len(row.cells) <= last or not row.cells[last]:
                raise TaskDataError(
                    f"{self.path}, line {row.number} has no tag: it has {len(row.cells)} "
                    f"column{'' if len(row.cells) == 1 else 's'}, and {last + 1} are needed; write "
                    "a word and its tag a line"
                )
            if not row.cells[word]:
                raise TaskDataError(
                    f"{self.path}, line {row.number} has a tag and no word in column {word + 1}; "
                    "write one, or name another column as `columns.word`"
                )
            if _TWO_TAGS.search(row.cells[tag]):
                raise TaskDataError(
                    f"{self.path}, line {row.number} has {row.cells[tag]!r}, several tags, in "
                    f"column {tag + 1}; write one tag a word, further ones in columns of their own"
                )

    def _words(self, place: int, language: str | None) -> list[str]:
        """The words, without the language that a prefix of all of them names."""
        words = self.file.column(place)
        found = _LANGUAGE.match(words[0])
        prefix = f"{language}:" if language else found and found[0]
        if prefix and len(words) > 1 and all(word.startswith(prefix) for word in words):
            if not language:
                self.notes.append(f"{prefix!r} was taken off all words of {self.path.name}")
            return [word.removeprefix(prefix) for word in words]
        return words

    def _word_column(self, first: int, tag: int) -> int:
        """Find the column of the words, from 0 on: the first that is no tag and no place.

        Raises:
            TaskDataError: it is not clear which; names the option.
        """
        places = [place for place in range(first, self.width) if place != tag]
        rest = [
            place for place in places if place not in self.file.ids and not self._are_places(place)
        ]
        if not rest:
            return places[0]
        passed_over = rest[0] != places[0] and len(rest) > 1 and rest[1] < tag
        if passed_over or self._are_lemmas_first(rest) or self._are_others_richer(rest):
            shown = ", ".join(
                f"{n + 1} ({', '.join(list(dict.fromkeys(self.file.column(n)))[:_SHOWN])}, …)"
                for n in places
            )
            raise TaskDataError(
                f"{self.first}: it is not clear which column holds the words; its columns are "
                f"{shown}; name one as `columns.word`"
            )
        return rest[0]

    def _are_others_richer(self, places: Sequence[int]) -> bool:
        """Whether another column looks more like words than the first.

        It does with many more different cells, as words have beside their parts of speech, or with
        cells that come again where all of the first are different, as names of words are.
        """
        first, *others = (len(set(self.file.column(place))) for place in places)
        rows = sum(map(len, self.file.sentences))
        named = rows >= MANY and first == rows and any(rows / 10 < n < rows for n in others)
        return named or any(n > RICHER * first for n in others)

    def _are_places(self, column: int) -> bool:
        """Whether a column says where words stand in their text."""
        cells = self.file.column(column)
        return len(set(cells)) > 1 and all(map(_PLACE.fullmatch, cells))

    def _are_lemmas_first(self, places: Sequence[int]) -> bool:
        """Whether the second column holds the words of the first with more capital letters.

        As a rule lemmas stand behind words.
        """
        if len(places) < 2:
            return False
        one, other = (self.file.column(place) for place in places[:2])
        alike = sum(a.lower() == b.lower() for a, b in zip(one, other, strict=True))
        capitals, others = (sum(cell[:1].isupper() for cell in cells) for cells in (one, other))
        return 2 * alike > len(one) and capitals < others

    def _tag_column(self, first: int) -> int:
        """Find the column of the tags, from 0 on."""
        self._refuse_blanks_in_words()
        places = range(first, self.width)
        if self.width == first + 1:  # some lines have words alone
            bare = next(row for row in self.file.rows() if len(row.cells) == self.width)
            raise TaskDataError(
                f"{self.path}, line {bare.number} has no tag; write a word and its tag a line"
            )
        if self._take_unknown_header(places):
            return self._tag_column(first)
        columns = {place: self.file.column(place) for place in places}
        marked = [place for place in places if all(map(is_marked, set(columns[place])))]
        spans = [place for place in marked if set(columns[place]) - {"O"}]
        without_chunks = [p for p in spans if not _types(columns[p]) <= _CHUNKS]
        spans = without_chunks or spans
        if len(spans) == 1:
            return spans[0]
        if spans:
            return self._outer(spans, columns)
        self._refuse_mistakes(columns)
        if marked:  # no word is in a span
            return marked[-1]
        schemes = {p: scheme_of(set(columns[p])) for p in places if p != first}
        inside = [place for place, scheme in schemes.items() if scheme is not None]
        if len(inside) == 1:
            return inside[0]
        if not inside and self.width == first + 2 == self.file.widest:
            words, tags = (len(set(columns[place])) for place in places)
            if tags > RICHER * words:
                raise TaskDataError(
                    f"{self.first}: it is not clear which column holds the words, and which the "
                    f"tags: column {first + 1} has {words} different cells, column {first + 2} "
                    f"{tags}; name them as `columns.word` and `columns.tag`"
                )
            return first + 1  # a tag a word, such as a part of speech
        raise self._unclear(inside, columns)

    def _take_unknown_header(self, places: Sequence[int]) -> bool:
        """Leave out the first line of a file if its columns of tags have tags but there."""
        rows = list(self.file.rows())
        first = rows[0]
        found = any(
            not is_marked(first.cells[place])
            and all(is_marked(row.cells[place]) for row in rows[1:])
            and any(row.cells[place] not in ("O", "o") for row in rows[1:])
            for place in places
        )
        if not found or len(rows) < LEAST_ROWS:
            return False
        self.file.leave_out_first()
        self.notes.append(
            f"line {first.number} of {self.path.name} is taken for a header, and left out: "
            f"{', '.join(first.cells)}"
        )
        return True

    def _refuse_blanks_in_words(self) -> None:
        """Refuse lines that have more columns than others, and their tags in the last one."""
        rows = list(self.file.rows())
        last = [row.cells[-1] for row in rows]
        if self.file.tabs or self.width == self.file.widest or set(last) <= {"O", "o"}:
            return
        if all(map(is_marked, last)):
            row = next(row for row in rows if len(row.cells) > self.width)
            raise TaskDataError(
                f"{self.path}, line {row.number} has {len(row.cells)} columns, and others "
                f"{self.width}; part them by tabs, so that a word may have blanks"
            )

    def _refuse_types_beside(self, word: int, tag: int) -> None:
        """Refuse marks whose types stand in a column of their own."""
        for place in range(self.width):
            if place in (word, tag):
                continue
            inside = [
                row.cells[place] for row in self.file.rows() if row.cells[tag] not in ("O", "o")
            ]
            others = {row.cells[place] for row in self.file.rows() if row.cells[tag] in ("O", "o")}
            if others <= _NO_TYPE and _NO_TYPE.isdisjoint(inside):
                raise TaskDataError(
                    f"{self.first} has marks in column {tag + 1} and types in column {place + 1}; "
                    f"write both in one, such as B-{inside[0]}"
                )

    def _outer(self, spans: list[int], columns: dict[int, list[str]]) -> int:
        """Of nested spans the outer ones, which hold all the others."""
        outer, *others = spans
        for place in others:
            pairs = zip(columns[outer], columns[place], strict=True)
            if any(tag == "O" and other != "O" for tag, other in pairs):
                raise self._unclear(spans, columns)
        listed = " and ".join(str(place + 1) for place in spans)
        self.notes.append(
            f"columns {listed} of {self.path.name} hold tags, the latter within spans of the "
            f"first; column {outer + 1} is taken (`columns.tag` takes another)"
        )
        return outer

    def _refuse_mistakes(self, columns: dict[int, list[str]]) -> None:
        """Refuse a column of tags with something else in it."""
        for place, cells in columns.items():
            tags = sum(map(is_marked, cells))
            if NEARLY * len(cells) <= tags and any(is_marked(c) and c != "O" for c in cells):
                row = next(row for row in self.file.rows() if not is_marked(row.cells[place]))
                usual = next(cell for cell in cells if is_marked(cell) and cell != "O")
                raise TaskDataError(
                    f"{self.path}, line {row.number} has {row.cells[place]!r} in column "
                    f"{place + 1}, where tags such as O and {usual} stand; mend it, or name "
                    "another column as `columns.tag`"
                )

    def _unclear(self, places: list[int], columns: dict[int, list[str]]) -> TaskDataError:
        held = ", ".join(
            f"{place + 1} ({', '.join(list(dict.fromkeys(cells))[:_SHOWN])}, …)"
            for place, cells in columns.items()
        )
        listed = " and ".join(str(place + 1) for place in places)
        what = f"columns {listed} may hold the tags" if places else "no column holds tags of spans"
        within = next((n for n, cells in columns.items() if any(map(_WITHIN.match, cells))), None)
        if within is not None:
            what = f"column {within + 1} holds tags within other values, and {what}"
        brackets = next((n for n, cells in columns.items() if any(map(_is_bracket, cells))), None)
        if brackets is not None:
            what = f"column {brackets + 1} holds brackets, as of CoNLL-2012, and {what}"
        return TaskDataError(
            f"{self.first}: {what}, such as B-PER, I-PER and O; its columns are {held}; name one "
            "as `columns.tag`"
        )


def _is_bracket(cell: str) -> bool:
    return cell.startswith("(") and cell.endswith(("*", ")")) and len(cell) > 2


def _types(tags: Sequence[str]) -> set[str]:
    scheme = scheme_of(set(tags))
    parts = map(scheme.parted, set(tags)) if scheme is not None else ()
    return {part[1] for part in parts if part is not None}

"""Words and tags in columns, as CoNLL's shared tasks keep them: which column is what is found out.

People's files have columns of numbers before the words, parts of speech and chunks between, a
second layer of tags behind, and comments. What a column is, is told by what is in it, and never by
its place alone; where that leaves a choice, it is refused rather than made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.csv_rows import csv_rows, is_written_list
from kdnas.evaluation.data.opening import read_text, suffix_of
from kdnas.evaluation.data.tag_schemes import TagScheme, is_marked, scheme_of
from kdnas.evaluation.tasks.examples import TaggedExample
from kdnas.evaluation.tasks.task import ColumnChoice, Columns
from kdnas.reach import ANYWHERE, Reach

DOCUMENT_MARK: Final = "-DOCSTART-"
MOST_WORDS: Final = 200
"""Of a file's only sentence; more are sentences with nothing between them."""
LONG_SENTENCE: Final = 40
"""Words of a file's only sentence that a reader is told of."""
NEARLY: Final = 0.8
"""Share of a column's cells that are tags, from which on the others are mistakes."""
_COMMENT = re.compile(r"#\s*(id\b|sent_id\b|text\b|newdoc\b|newpar\b|doc\b|[\w.:-]+\s*=\s)")
_NUMBER = re.compile(r"\d+")
_JOINED = re.compile(r"\d+[-.]\d+")
"""CoNLL-U's numbers of tokens that are several words, and of words that are not written."""
_LANGUAGE = re.compile(r"([a-z]{2,3}(?:-[a-z]+)?):")
_WORD_NAMES = frozenset({"word", "words", "token", "tokens", "form"})
_TAG_NAMES = frozenset(
    {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "iob", "bio", "ner_label"}
)
_SENTENCE_NAMES = frozenset({"sentence", "sentence_id", "sentence #", "sent", "sent_id"})
_PLACE = re.compile(r"-?\d+(?:[-:., ]+\d+)*")
"""Where a word stands in its text or a recording, or how sure its tag is."""
_NO_TYPE = frozenset({"_", "-", "O", "o", ""})
RICHER: Final = 2
"""Times as many different cells a column of words has at most than the one that was taken."""
MANY: Final = 50
"""Rows of a file in which some word comes twice."""
BLANK_WORDS, SOME_BLANK_WORDS = 0.05, 10
"""Share and number of words that are blank, from which on they are meant so."""
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
    """

    examples: list[TaggedExample]
    word: int
    tag: int
    about: str
    notes: tuple[str, ...] = ()


class _Row(NamedTuple):  # files have millions of them
    number: int
    cells: tuple[str, ...]


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
    text, is_csv = read_text(path, reach), suffix_of(path) == ".csv"
    return _File(path, _with_tabs(path, text) if is_csv else text, names).read(language, choice)


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


class _File:
    """A file of columns.

    Args:
        path: for messages.
        text: of it.
        names: of columns in a header, beside the usual ones.
    """

    def __init__(self, path: Path, text: str, names: Collection[Columns] = ()) -> None:
        if text.startswith("#FORMAT=WebAnno"):
            raise TaskDataError(
                f"{path} is in the format of WebAnno; export it from there as CoNLL 2002"
            )
        self.path = path
        self.names = names
        self.notes: list[str] = []
        self.named_sentence: int | None = None
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

    def _sentences(self, lines: Sequence[tuple[int, str]]) -> Iterator[list[_Row]]:
        """Rows of words between blank lines, without comments."""
        sentence: list[_Row] = []
        found: list[list[_Row]] = []
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
            if not sentence and _COMMENT.match(line):
                continue
            sentence.append(_Row(number, self._cells(line)))
        yield from self._without_comments(found)

    def _without_comments(self, sentences: list[list[_Row]]) -> Iterator[list[_Row]]:
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

        def is_comment(row: _Row) -> bool:
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

    def rows(self) -> Iterator[_Row]:
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
        self.named_sentence = next(
            (n for n, name in enumerate(names) if name in _SENTENCE_NAMES), None
        )
        return ColumnChoice(words[0], tags[0] if len(tags) == 1 else None)

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
            place = min(found)
            parted: list[list[_Row]] = []
            before = None
            for row in self.sentences[0]:
                cell = row.cells[place] or before  # named on the first row alone
                if cell != before or not parted:
                    parted.append([])
                parted[-1].append(row)
                before = cell
            self.sentences = parted
            self.notes.append(
                f"sentences of {self.path.name} are parted where column {place + 1} changes"
            )
        return found

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
        parted: list[list[_Row]] = []
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

    def read(self, language: str | None, choice: ColumnChoice) -> ReadColumns | None:
        """Find the columns, and make examples of them."""
        for name, wanted in (("word", choice.word), ("tag", choice.tag)):
            if wanted is not None and wanted > self.widest:
                raise TaskDataError(
                    f"{self.first} has {self.widest} columns, not {wanted}; give another "
                    f"--{name}-column"
                )
        first = 1 if self.has_numbers else 0
        if choice.tag is None and choice.word is None and self.widest == first + 1:
            return None
        wanted_tag, wanted_word = choice.tag or self.named.tag, choice.word or self.named.word
        tag = self._tag_column(first) if wanted_tag is None else wanted_tag - 1
        word = self._word_column(first, tag) if wanted_word is None else wanted_word - 1
        if word == tag:
            raise TaskDataError(
                f"{self.first}: words and tags cannot both be in column {tag + 1}; give another "
                "--word-column or --tag-column"
            )
        self._leave_blanks(word)
        self._check(word, tag)
        tags = self.column(tag)
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
        for number, sentence in enumerate(self.sentences, 1):
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
        return ReadColumns(
            examples, word + 1, tag + 1, self._about(word, tag, scheme), tuple(self.notes)
        )

    def _about(self, word: int, tag: int, scheme: TagScheme | None) -> str:
        parted = "tabs" if self.tabs else "blanks"
        if suffix_of(self.path) == ".csv":
            parted = "delimiters of CSV"
        kind = "a tag a word" if scheme is None else scheme.name
        return (
            f"words in column {word + 1}, tags in column {tag + 1} ({kind}) of {self.width}, "
            f"parted by {parted}"
        )

    def _leave_blanks(self, word: int) -> None:
        """Leave out words that are blank, where there are many: blanks of a text in letters."""
        rows = [row for row in self.rows() if len(row.cells) > word]
        blank = sum(not row.cells[word] for row in rows)
        if blank < max(SOME_BLANK_WORDS, BLANK_WORDS * len(rows)):
            return
        kept = [[r for r in s if len(r.cells) <= word or r.cells[word]] for s in self.sentences]
        self.sentences = [sentence for sentence in kept if sentence]
        self.notes.append(f"{blank} blank words of {self.path.name} are left out")

    def _check(self, word: int, tag: int) -> None:
        last = max(word, tag)
        for row in self.rows():
            if len(row.cells) <= last or not row.cells[last]:
                raise TaskDataError(
                    f"{self.path}, line {row.number} has no tag: it has {len(row.cells)} "
                    f"column{'' if len(row.cells) == 1 else 's'}, and {last + 1} are needed; write "
                    "a word and its tag a line"
                )
            if not row.cells[word]:
                raise TaskDataError(
                    f"{self.path}, line {row.number} has a tag and no word in column {word + 1}; "
                    "write one, or name another column with --word-column"
                )
            if _TWO_TAGS.search(row.cells[tag]):
                raise TaskDataError(
                    f"{self.path}, line {row.number} has {row.cells[tag]!r}, several tags, in "
                    f"column {tag + 1}; write one tag a word, further ones in columns of their own"
                )

    def _words(self, place: int, language: str | None) -> list[str]:
        """The words, without the language that a prefix of all of them names."""
        words = self.column(place)
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
        rest = [place for place in places if place not in self.ids and not self._are_places(place)]
        if not rest:
            return places[0]
        passed_over = rest[0] != places[0] and len(rest) > 1 and rest[1] < tag
        if passed_over or self._are_lemmas_first(rest) or self._are_others_richer(rest):
            shown = ", ".join(
                f"{n + 1} ({', '.join(list(dict.fromkeys(self.column(n)))[:_SHOWN])}, …)"
                for n in places
            )
            raise TaskDataError(
                f"{self.first}: it is not clear which column holds the words; its columns are "
                f"{shown}; name one with --word-column"
            )
        return rest[0]

    def _are_others_richer(self, places: Sequence[int]) -> bool:
        """Whether another column looks more like words than the first.

        It does with many more different cells, as words have beside their parts of speech, or with
        cells that come again where all of the first are different, as names of words are.
        """
        first, *others = (len(set(self.column(place))) for place in places)
        rows = sum(map(len, self.sentences))
        named = rows >= MANY and first == rows and any(rows / 10 < n < rows for n in others)
        return named or any(n > RICHER * first for n in others)

    def _are_places(self, column: int) -> bool:
        """Whether a column says where words stand in their text."""
        cells = self.column(column)
        return len(set(cells)) > 1 and all(map(_PLACE.fullmatch, cells))

    def _are_lemmas_first(self, places: Sequence[int]) -> bool:
        """Whether the second column holds the words of the first with more capital letters.

        As a rule lemmas stand behind words.
        """
        if len(places) < 2:
            return False
        one, other = (self.column(place) for place in places[:2])
        alike = sum(a.lower() == b.lower() for a, b in zip(one, other, strict=True))
        capitals, others = (sum(cell[:1].isupper() for cell in cells) for cells in (one, other))
        return 2 * alike > len(one) and capitals < others

    def _tag_column(self, first: int) -> int:
        """Find the column of the tags, from 0 on."""
        places = range(first, self.width)
        if self.width == first + 1:  # some lines have words alone
            bare = next(row for row in self.rows() if len(row.cells) == self.width)
            raise TaskDataError(
                f"{self.path}, line {bare.number} has no tag; write a word and its tag a line"
            )
        columns = {place: self.column(place) for place in places}
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
        if not inside and self.width == first + 2 == self.widest:
            words, tags = (len(set(columns[place])) for place in places)
            if tags > RICHER * words:
                raise TaskDataError(
                    f"{self.first}: it is not clear which column holds the words, and which the "
                    f"tags: column {first + 1} has {words} different cells, column {first + 2} "
                    f"{tags}; name them with --word-column and --tag-column"
                )
            return first + 1  # a tag a word, such as a part of speech
        raise self._unclear(inside, columns)

    def _refuse_types_beside(self, word: int, tag: int) -> None:
        """Refuse marks whose types stand in a column of their own."""
        for place in range(self.width):
            if place in (word, tag):
                continue
            inside = [row.cells[place] for row in self.rows() if row.cells[tag] not in ("O", "o")]
            others = {row.cells[place] for row in self.rows() if row.cells[tag] in ("O", "o")}
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
            f"first; column {outer + 1} is taken (--tag-column takes another)"
        )
        return outer

    def _refuse_mistakes(self, columns: dict[int, list[str]]) -> None:
        """Refuse a column of tags with something else in it."""
        for place, cells in columns.items():
            tags = sum(map(is_marked, cells))
            if NEARLY * len(cells) <= tags and any(is_marked(c) and c != "O" for c in cells):
                row = next(row for row in self.rows() if not is_marked(row.cells[place]))
                usual = next(cell for cell in cells if is_marked(cell) and cell != "O")
                raise TaskDataError(
                    f"{self.path}, line {row.number} has {row.cells[place]!r} in column "
                    f"{place + 1}, where tags such as O and {usual} stand; mend it, or name "
                    "another column with --tag-column"
                )

    def _unclear(self, places: list[int], columns: dict[int, list[str]]) -> TaskDataError:
        held = ", ".join(
            f"{place + 1} ({', '.join(list(dict.fromkeys(cells))[:_SHOWN])}, …)"
            for place, cells in columns.items()
        )
        listed = " and ".join(str(place + 1) for place in places)
        what = f"columns {listed} may hold the tags" if places else "no column holds tags of spans"
        brackets = next((n for n, cells in columns.items() if any(map(_is_bracket, cells))), None)
        if brackets is not None:
            what = f"column {brackets + 1} holds brackets, as of CoNLL-2012, and {what}"
        return TaskDataError(
            f"{self.first}: {what}, such as B-PER, I-PER and O; its columns are {held}; name one "
            "with --tag-column"
        )


def _places(names: Sequence[str], chosen: Collection[str], usual: Collection[str]) -> list[int]:
    """Columns from 1 on that are called as a user says, or else as is usual."""
    for known in ({name.lower() for name in chosen}, usual):
        found = [n for n, name in enumerate(names, 1) if name in known]
        if found:
            return found
    return []


def _is_bracket(cell: str) -> bool:
    return cell.startswith("(") and cell.endswith(("*", ")")) and len(cell) > 2


def _types(tags: Sequence[str]) -> set[str]:
    scheme = scheme_of(set(tags))
    parts = map(scheme.parted, set(tags)) if scheme is not None else ()
    return {part[1] for part in parts if part is not None}


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether cells number words: each sentence anew, or all of them."""
    numbers = [cell for cell in cells if not _JOINED.fullmatch(cell)]
    if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
        return False
    counted = [int(number) for number in numbers]
    pairs = zip([0, *counted], counted, strict=False)
    return all(after in {0, 1, before + 1} for before, after in pairs)

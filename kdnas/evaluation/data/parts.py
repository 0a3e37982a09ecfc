"""The labelled examples of each part of a task, as its files or the hub have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.converting import Converted, from_rows
from kdnas.evaluation.data.files.columns import read_columns
from kdnas.evaluation.data.files.opening import suffix_of
from kdnas.evaluation.data.files.squad import NOT_FOUND, read_squad, read_squad_rows
from kdnas.evaluation.data.files.tables import MISSING, read_table
from kdnas.evaluation.data.files.watching import PARTS, Part
from kdnas.evaluation.data.finding import Found, find_files, parts_not_read, parts_of
from kdnas.evaluation.data.hub import pinned, read_hub_part, sources_of
from kdnas.evaluation.data.recognising import require_published
from kdnas.evaluation.data.understood import in_words
from kdnas.evaluation.tasks.examples import (
    Example,
    Reading,
    SpanExample,
    TextExample,
)
from kdnas.evaluation.tasks.registry import TASKS, TYDIQA_LANGUAGES
from kdnas.evaluation.tasks.task import RECORD_FILES, Task
from kdnas.reach import Reach
from kdnas.specs.evaluation import OWN_SUITE

Examples = dict[str, list[Example]]
SECRET_TESTS = ("glue", "squad", "squad2", "tydiqa")
_MOST_NAMED = 5
_IN_COLUMNS: Mapping[str, Part] = {"trial": "dev"}  # as SICK calls it


@dataclass
class Parts:
    """Labelled examples of each part by language or variant, as they are read.

    Attributes:
        parts: part → language or variant, or nothing → examples.
        sources: part → files or data sets that it was read from.
        notes: what a reader of the scores should know.
        unlabelled: why files have no labels, of each.
        readings: how each was read.
        columns: of words and tags in a file, with its name.
        is_cut: whether a file that belongs to a part is not there.
    """

    parts: dict[str, Examples] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unlabelled: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    columns: tuple[str, tuple[int, int]] | None = None
    is_cut: bool = False

    def add(
        self,
        part: str,
        key: str | None,
        read: Converted,
        sources: Sequence[str],
        *,
        again: bool = False,
        told: str | None = None,
    ) -> None:
        """Add what was read of a part.

        Args:
            part: of the task.
            key: language or variant, where the rows name none.
            read: of it.
            sources: that it was read from.
            again: it may be one file of several.
            told: what the part is called to the user, if not so.
        """
        for language, examples in read.examples.items():
            name = language or key or ""
            known = self.parts.setdefault(part, {}).setdefault(name, [])
            # Of a part in several files each may count its own rows.
            if again and {e.id for e in known} & {e.id for e in examples}:
                both = [*known, *examples]
                known[:] = [replace(e, id=str(n)) for n, e in enumerate(both, 1)]
            else:
                known += examples
        self.sources.setdefault(part, []).extend(sources)
        self.notes += read.notes
        source = ", ".join(sources)
        first = next((one for examples in read.examples.values() for one in examples), None)
        said = "" if first is None else in_words(first)
        self.readings.append(Reading(source, told or part, len(read), read.about, said))
        self._check_columns(source, read.columns)

    def _check_columns(self, source: str, columns: tuple[int, int] | None) -> None:
        """Refuse parts of which one has its words and tags in other columns than another."""
        if columns is None:
            return
        self.columns = self.columns or (source, columns)
        first, known = self.columns
        if known != columns:
            raise TaskDataError(
                f"{first} has words in column {known[0]} and tags in column {known[1]}, {source} "
                f"in {columns[0]} and {columns[1]}; name them as `columns.word` and `columns.tag`"
            )


def read_folder(task: Task, data_dir: Path, reach: Reach) -> Parts:
    """Read the files of a task in a folder, with the training part that it borrows.

    Args:
        task: the task.
        data_dir: a folder, one above it, or a file.
        reach: how they are opened.

    Raises:
        RequestError: one of them is out of reach.
        TaskDataError: there is none (lists what was looked for), or one cannot be read.
    """
    parts = Parts()
    found = find_files(task, data_dir, reach)
    files, parts.notes = parts_of(found)
    parts.notes += parts_not_read(task, data_dir, found, reach)
    own_language = any(f.part == "train" and f.key == task.train_language for f in files)
    for file in files:
        # Training parts of other languages may be large, and would not be used.
        if file.part != "train" or not own_language or file.key == task.train_language:
            _add_file(parts, task, file, reach)
    halves = [file for file in files if file.together and file.shards is None]
    if len(halves) == 1:
        parts.is_cut = True
        parts.notes.append(
            f"not the official split: {halves[0].path.name} is one of two files of the "
            f"{halves[0].part} part, and the other is not there"
        )
    if task.train_from and not parts.parts.get("train"):
        other = TASKS[task.train_from]
        try:
            borrowed = find_files(other, data_dir, reach)
        except TaskDataError:
            borrowed = []  # Then the task is split, which its notes say.
        for file in borrowed:
            if file.part == "train":
                _add_file(parts, other, file, reach)
                parts.notes.append(f"trained on {other.name}")
    return parts


def _add_file(parts: Parts, task: Task, file: Found, reach: Reach) -> None:
    part = file.part or "test"
    for said, read in _read_file(task, file, reach).items():
        of = said or part
        if not len(read) or (of == "test" and _is_unlabelled(task, read)):
            _leave_out(parts, task, file, of, read)
            continue
        told = said or file.part or "all"
        parts.add(of, file.key, read, [str(file.path)], again=file.together, told=told)
    if file.passed_over:
        same = any(path.name == file.path.name for path in file.passed_over)
        names = ", ".join(str(path) if same else path.name for path in file.passed_over)
        parts.notes.append(f"{file.path.name} is taken as the {part} part, and not {names}")


def _leave_out(parts: Parts, task: Task, file: Found, part: str, read: Converted) -> None:
    """Tell of a file without labels, unless it is a test part that is published so.

    Raises:
        TaskDataError: it is what is to be learned from.
    """
    why = read.lacking or f"no example of {file.path} has a label"
    if part == "train":
        raise TaskDataError(why)
    parts.unlabelled.append(why)
    if part == "dev" or task.suite not in SECRET_TESTS:
        parts.notes.append(f"{file.path.name} is not used: {why}")


def _is_unlabelled(task: Task, read: Converted) -> bool:
    """Whether all examples of a user's table have −1 or another word for no class."""
    if task.suite != OWN_SUITE or task.kind != "classification":
        return False
    every = [example for part in read.examples.values() for example in part]
    none = {"-1", *MISSING}
    return all(isinstance(e, TextExample) and str(e.label).lower() in none for e in every)


def _read_file(task: Task, file: Found, reach: Reach) -> dict[str | None, Converted]:
    """Examples of one file, by the part that it says of them; none where it has no labels."""
    if task.kind == "span":
        column, said = "", list[str]()
        if suffix_of(file.path) == ".json":
            questions = read_squad(file.path, reach)
        else:
            questions, column, said = read_squad_rows(file.path, reach)
        if questions is None:
            return {
                None: Converted(
                    {}, lacking=f"{file.path} has no answers, each with text and answer_start"
                )
            }
        asked, notes = rows_by_part(file, column, said, questions)
        return {part: _checked(task, file, found, notes) for part, found in asked.items()}
    if task.kind == "tagging" and suffix_of(file.path) not in RECORD_FILES:
        columns = read_columns(file.path, file.key, reach, task.layout.choice, task.layout.columns)
        if columns is None:
            return {
                None: Converted(
                    {},
                    lacking=f"{file.path} has words without tags (write both, with a tab between)",
                )
            }
        places = (columns.word, columns.tag)
        sentences, notes = rows_by_part(file, columns.part_column, columns.said, columns.examples)
        for of_part in sentences.values():
            require_published(task, file, of_part)
        told = in_column(columns.about, columns.part_column, sentences)
        return {
            part: Converted({None: found}, (*columns.notes, *notes), told, places)
            for part, found in sentences.items()
        }
    table = read_table(file.path, task.layout, reach)
    if not table.labelled:
        if task.suite == OWN_SUITE and file.part in (None, "train"):
            raise TaskDataError(table.lacking)
        return {None: Converted({}, lacking=table.lacking)}
    said = [str(row.part) for row in table.rows]
    by_part, notes = rows_by_part(file, table.part_column, said, table.rows)
    about = in_column(table.about, table.part_column, by_part)
    read = {part: from_rows(task, rows, file.path.name) for part, rows in by_part.items()}
    for one in read.values():
        require_published(task, file, [e for part in one.examples.values() for e in part])
    return {
        part: Converted(one.examples, (*table.notes, *notes, *one.notes), about)
        for part, one in read.items()
    }


_Item = TypeVar("_Item")


def rows_by_part(
    file: Found, column: str, values: Sequence[str], items: Sequence[_Item]
) -> tuple[Mapping[str | None, Sequence[_Item]], tuple[str, ...]]:
    """Rows or sentences by the part that a column says they are of, if the file names none.

    Args:
        file: that they are from.
        column: that says it; empty where none does.
        values: of it, one an item.
        items: rows or sentences.

    Returns:
        Part → items, or None → all; and a note on what is not used.
    """
    if not column:
        return {None: items}, ()
    said = [value.strip().lower() for value in values]
    known = [PARTS.get(name) or _IN_COLUMNS.get(name) for name in said]
    named = list(dict.fromkeys(said))
    told = f"the column {column!r} of {file.path.name}"
    if len(named) <= _MOST_NAMED and (file.part is not None or not any(known)):
        others = ", ".join(map(repr, named))
        if file.part is not None and set(known) - {None, file.part}:
            why = f"which says {others}, since the file is called {file.part}"
        elif file.part is None:
            why = f"which says {others}, and not train, dev or test"
        else:
            return {None: items}, ()
        return {None: items}, (f"{told} is not used, {why}",)
    if file.part is not None or not any(known):
        return {None: items}, ()
    by_part: dict[str | None, list[_Item]] = {part: [] for part in known if part}
    strange: Counter[str] = Counter()
    for item, name, part in zip(items, said, known, strict=True):
        if part is None:
            strange[name] += 1
        else:
            by_part[part].append(item)
    names = ", ".join(map(repr, list(strange)[:_MOST_NAMED]))
    left_out = f"{strange.total()} rows of {file.path.name} are left out: their {column} is {names}"
    return by_part, (left_out,) if strange else ()


def in_column(about: str, column: str, by_part: Collection[str | None]) -> str:
    """How a file was understood, with the column that parts it."""
    return about if None in by_part else f"{about}, part in {column!r}"


def _checked(
    task: Task, file: Found, questions: Sequence[SpanExample], notes: Sequence[str]
) -> Converted:
    """Questions by language, if none is without an answer that must have one."""
    impossible = sum(question.impossible for question in questions)
    if impossible and task.suite != "squad2":
        first = next(question.id for question in questions if question.impossible)
        raise TaskDataError(
            f"{file.path} has {impossible} questions without an answer, such as {first!r}, unlike "
            f"{task.name}; evaluate it as SQuAD 2.0"
        )
    lost = [q.id for q in questions if q.answers and set(q.starts) == {NOT_FOUND}]
    answered = sum(bool(question.answers) for question in questions)
    if 2 * len(lost) > answered:
        raise TaskDataError(
            f"{file.path} has {len(lost)} of {answered} answers that are nowhere in their context, "
            f"such as that of question {lost[0]!r}; check that contexts and answers belong together"
        )
    blank = [question.id for question in questions if not question.question.strip()]
    moved = [question.id for question in questions if question.moved]
    told = {
        "are nowhere in their context": lost,
        "begin elsewhere than it says, and are taken from where they were found": moved,
    }
    asked = (
        (f"{len(blank)} questions of {file.path.name} are blank, such as {blank[0]!r}",)
        if blank
        else ()
    )
    found = [
        f"{len(ids)} of {answered} answers of {file.path.name} {what}, as that of question "
        f"{ids[0]!r}"
        for what, ids in told.items()
        if ids
    ]
    return Converted(_by_language(task, questions, file.key), (*notes, *asked, *found))


def _by_language(
    task: Task, questions: Sequence[SpanExample], key: str | None
) -> dict[str | None, list[Example]]:
    """Questions by the language that ids name in TyDiQA; those of MLQA are told theirs."""
    by_language: dict[str | None, list[Example]] = {}
    for question in questions:
        language = None
        if task.suite == "tydiqa":
            language = TYDIQA_LANGUAGES.get(question.id.partition("-")[0])
        elif task.suite == "mlqa":
            question = replace(question, language=key)
        by_language.setdefault(language, []).append(question)
    return by_language


def read_hub(task: Task) -> Parts:
    """Read the data sets of a task on the hub.

    Raises:
        TaskDataError: there is none, or it cannot be read.
    """
    source = task.hub
    if source is None:
        raise TaskDataError(
            f"{task.name} has no data set on the hub; give a folder or a file with its examples"
        )
    parts, revision = Parts(), pinned(source)
    for key, part in source.evaluations.items():
        read = read_hub_part(task, source, part, revision)
        origin = sources_of(task, source, revision)
        parts.add(usual_part(task), key, _in_languages(task, key, read), origin)
    lender = task if source.train else TASKS[task.train_from or ""]
    if lender.hub is None or lender.hub.train is None:
        raise TaskDataError(f"{task.name} has no training data on the hub; give a folder with some")
    if lender is not task:
        revision = pinned(lender.hub)
        parts.notes.append(f"trained on {lender.name}")
    read = read_hub_part(lender, lender.hub, lender.hub.train, revision)
    origin = sources_of(lender, lender.hub, revision)
    parts.add("train", task.train_language, read, origin)
    return parts


def _in_languages(task: Task, key: str, read: Converted) -> Converted:
    """Questions of the hub by language, as those of files."""
    questions = [e for part in read.examples.values() for e in part if isinstance(e, SpanExample)]
    return Converted(_by_language(task, questions, key)) if task.kind == "span" else read


def usual_part(task: Task) -> str:
    """The part that papers report: the test part, unless its labels are secret."""
    return "dev" if task.suite in SECRET_TESTS else "test"

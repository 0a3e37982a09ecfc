"""The examples of a task: from files found in a folder, or from the hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.columns import read_columns
from kdnas.evaluation.data.converting import Converted, found_labels, from_rows
from kdnas.evaluation.data.finding import PARTS, Found, find_files, parts_of
from kdnas.evaluation.data.hub import pinned, read_hub_part, sources_of
from kdnas.evaluation.data.opening import suffix_of
from kdnas.evaluation.data.recognising import OtherDataError, is_named, require_published
from kdnas.evaluation.data.retrieval import load_retrieval
from kdnas.evaluation.data.sizes import not_as_published
from kdnas.evaluation.data.splitting import share_kept, split
from kdnas.evaluation.data.squad import NOT_FOUND, read_squad, read_squad_rows
from kdnas.evaluation.data.tables import Row, Table, read_table
from kdnas.evaluation.data.tag_schemes import is_span_scheme
from kdnas.evaluation.data.understood import in_words
from kdnas.evaluation.tasks.examples import (
    Example,
    Reading,
    SpanExample,
    TaggedExample,
    TaskData,
    TextExample,
)
from kdnas.evaluation.tasks.registry import TASKS, TYDIQA_LANGUAGES
from kdnas.evaluation.tasks.task import RECORD_FILES, Task
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.evaluation import OWN_SUITE

Examples = dict[str, list[Example]]
SECRET_TESTS = ("glue", "squad", "squad2", "tydiqa")
MOST_CLASSES = 20
"""Of a user's task these are always believed; more, if there are two examples of each."""
MISSING = frozenset({"nan", "null", "n/a", "?"})
"""Names of classes that look like missing labels, in lower case."""
_MOST_NAMED = 5


@dataclass
class _Parts:
    """Labelled examples of each part by language or variant, as they are read."""

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
            # Of a part in several files each counts its own rows.
            if known and again:
                examples = [replace(e, id=str(len(known) + n)) for n, e in enumerate(examples, 1)]
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
                f"in {columns[0]} and {columns[1]}; name them with --word-column and --tag-column"
            )


def load_task(
    task: Task, data_dir: Path | None, seed: int = 0, reach: Reach = ANYWHERE
) -> TaskData:
    """Load what a task is trained on and scored on.

    A part that is published without labels is not used. Scored is the development part where the
    labels of the test part are secret (GLUE, SQuAD, TyDiQA), elsewhere the test part; or the other
    one, if that alone has labels or it has more languages. Where there is no training part, the
    development part is trained on if the test part is scored. Otherwise, and where there is nothing
    labelled beside the training part, a fifth of what there is is held out by a seeded draw. In
    either case ``official_split`` is False. A task whose models are taken as they are needs no
    training part.

    Args:
        task: the task.
        data_dir: a folder with the task's files as they are published, or a folder above it; a
            single file; None for the hub's data set.
        seed: of the split of our own, where one is needed.
        reach: how the folder's files are opened.

    Raises:
        RequestError: one of them is out of reach.
        TaskDataError: nothing is found (lists what was looked for), nothing has labels, or
            something cannot be read; names file and line.
    """
    if task.kind == "retrieval" and data_dir is not None:
        return load_retrieval(task, data_dir, reach)
    found = _from_hub(task) if data_dir is None else _from_folder(task, data_dir, reach)
    train = _training_part(task, found.parts.get("train", {}), found.notes)
    name, scored = _scored_part(task, found)
    if not train and not scored:
        raise TaskDataError(
            f"no labelled examples of {task.name} in {', '.join(found.unlabelled)}; labels are "
            "needed for training and scoring"
        )
    dev: Sequence[Example] = ()
    if scored and name == "test":
        dev = _tuning_part(task, found)
    official = bool(train) and bool(scored) and not found.is_cut
    learned = "train"
    if train and scored:
        evaluations = _named(scored, name)
    elif not task.fine_tuned:
        evaluations = _named(scored or found.parts["train"], name if scored else "train")
        official = bool(scored) and not found.is_cut
    elif dev:
        train, evaluations, learned, dev = [*dev], _named(scored, name), "dev", ()
        found.notes.append(
            "not the official split: there is no training part, so that the dev part is trained on"
        )
    else:
        pool = _named(scored or found.parts["train"], "dev")
        train, evaluations = split(task, pool, seed)
        lacking = "labelled part to score" if not scored else "training part"
        found.notes.append(
            f"not the official split: there is no {lacking}, so that "
            f"{share_kept(task, pool, train)} of the labelled examples are trained on and others "
            f"scored (seed {seed})"
        )
    if official:
        differ = not_as_published(task, name, train if task.fine_tuned else (), evaluations)
        official = not differ
        found.notes += differ
    scored_examples = [e for examples in evaluations.values() for e in examples]
    labels = found_labels(task, [*train, *scored_examples])
    _check_labels(task, labels, train)
    _check_numbers(task, [*train, *scored_examples])
    if not task.labels and task.fine_tuned:
        found.notes += _new_classes(task, train, scored_examples)
    found.notes += _doubtful(task, labels, [*train, *scored_examples])
    return TaskData(
        task=task,
        train=train,
        evaluations=evaluations,
        labels=labels,
        official_split=official,
        sources=tuple(dict.fromkeys(found.sources.get(learned, []) + found.sources.get(name, []))),
        notes=tuple(dict.fromkeys(found.notes)),
        tuning=dev,
        readings=tuple(found.readings),
    )


def _new_classes(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[str]:
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
        raise TaskDataError(
            f"no scored example of {task.name} has a class or a type of span that is learned: "
            f"there are {', '.join(sorted(there)[:_MOST_NAMED])}, and learned are "
            f"{', '.join(sorted(known)[:_MOST_NAMED])}; write them alike"
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


def _doubtful(task: Task, labels: tuple[str, ...] | None, examples: Sequence[Example]) -> list[str]:
    """Say what of a user's table may be meant otherwise: its labels, and blank texts."""
    if task.suite != OWN_SUITE:
        return []
    notes = []
    texts = [e for e in examples if isinstance(e, TextExample)]
    blank = sum(not e.text or e.pair == "" for e in texts)
    if blank:
        notes.append(f"{blank} of {len(texts)} examples have a blank text")
    if labels is None or task.kind == "tagging":
        return notes
    missing = [name for name in labels if name.lower() in MISSING]
    if missing:
        count = sum(missing[0] in e.classes for e in texts)
        notes.append(
            f"{count} examples have the class {missing[0]!r}, which looks as if they had none; "
            "leave the cell blank if so"
        )
    alike: dict[str, list[str]] = {}
    for name in labels:
        alike.setdefault(_plain(name), []).append(name)
    return notes + [
        f"the classes {' and '.join(map(repr, names))} are hardly different, and are taken for "
        "different ones; write one alike everywhere if they are the same"
        for names in alike.values()
        if len(names) > 1
    ]


def _plain(name: str) -> str:
    """A class without case, and as a number if it is one: ``0`` of ``0.0``."""
    try:
        return f"{float(name):g}"
    except ValueError:
        return name.casefold()


def _check_numbers(task: Task, examples: Sequence[Example]) -> None:
    """Refuse numbers of a user's that are all the same: nothing goes with them."""
    if task.kind != "regression" or task.suite != OWN_SUITE or len(examples) < 2:
        return
    numbers = {e.number for e in examples if isinstance(e, TextExample)}
    if len(numbers) == 1:
        raise TaskDataError(
            f"all {len(examples)} examples of {task.name} have the number {numbers.pop():g}; give "
            "different ones, or name another column with --label"
        )


def _check_labels(task: Task, labels: tuple[str, ...] | None, train: Sequence[Example]) -> None:
    """Refuse labels that cannot be what a user means by them."""
    if labels is None:
        return
    if task.kind == "tagging":
        if task.metrics != ("accuracy",) and all(label.isdigit() for label in labels):
            raise TaskDataError(
                f"the tags of {task.name} are numbers, such as {', '.join(labels[:_MOST_NAMED])}; "
                "write the names that they stand for, such as B-PER, which the card of the data "
                "set lists"
            )
        if task.metrics != ("accuracy",) and not is_span_scheme(labels):
            raise TaskDataError(
                f"the tags of {task.name}, such as {next(t for t in labels if t != 'O')!r}, mark "
                "no spans with B- and I-; score words with --suite own --kind tagging --metrics "
                "accuracy, or name another column with --tag-column"
            )
    elif task.suite != OWN_SUITE:
        return
    elif not labels:
        raise TaskDataError(
            f"no example of {task.name} has a label; name another column with --label"
        )
    elif len(labels) < 2:
        raise TaskDataError(
            f"{task.name} has the only class {labels[0]!r}; give examples of at least two, or "
            "name another column with --label"
        )
    elif len(labels) > max(MOST_CLASSES, len(train) // 2):
        numbers = "" if task.kind == "multilabel" else "for numbers give --kind regression, or "
        raise TaskDataError(
            f"{task.name} has {len(labels)} classes for {len(train)} examples to learn from; "
            f"{numbers}name another column with --label"
        )


def without_plain(tasks: Sequence[Task]) -> list[Task]:
    """Leave out plain ``NER``, which any columns are, where they are those of another task."""
    return [task for task in tasks if task.layout.folders] or list(tasks)


def left_out(read: Sequence[Task], errors: Mapping[str, TaskDataError]) -> dict[str, TaskDataError]:
    """Those errors of a suite that its user wants to know of, where some of its tasks can be read.

    Of files that are read as plain ``NER`` that says enough, unless they are called otherwise.

    Args:
        read: the tasks that can be.
        errors: task → what came of reading it; of the others.
    """
    if all(task.layout.folders for task in read):
        return dict(errors)
    return {n: e for n, e in errors.items() if not isinstance(e, OtherDataError) or e.is_named}


def what_is_amiss(tasks: Sequence[Task], errors: Mapping[str, TaskDataError]) -> TaskDataError:
    """Return what to tell where none of a suite's tasks can be read.

    Of files that any folder may hold it is what the plainest task says, unless that finds none.

    Args:
        tasks: of the suite.
        errors: task → what came of reading it; of each of them.
    """
    plain = [errors[task.name] for task in tasks if not task.layout.folders]
    every = [*plain, *errors.values()]
    told = [error for error in every if not str(error).startswith("no data of")]
    return next(iter([*told, *errors.values()]))


def available_tasks(tasks: Iterable[Task], data_dir: Path, reach: Reach = ANYWHERE) -> list[Task]:
    """Those tasks whose files are found in a folder, by their names; nothing is read.

    Plain ``NER`` is one only if no other is.

    Raises:
        RequestError: a folder is out of reach.
        TaskDataError: none is found; lists what was looked for.
    """
    tasks, found, why = list(tasks), [], []
    for task in tasks:
        try:
            files = find_files(task, data_dir, reach)
        except TaskDataError as error:
            why.append(str(error))
        else:
            if is_named(task, files):
                found.append(task)
            else:
                why.append(f"nothing in {data_dir} is called {task.name}")
    if not found:
        raise TaskDataError("; ".join(why))
    return without_plain(found)


def _from_folder(task: Task, data_dir: Path, reach: Reach) -> _Parts:
    parts = _Parts()
    files, parts.notes = parts_of(find_files(task, data_dir, reach))
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


def _add_file(parts: _Parts, task: Task, file: Found, reach: Reach) -> None:
    part = file.part or "test"
    for said, read in _read_file(task, file, reach).items():
        of = said or part
        if not len(read) or (of == "test" and _is_unlabelled(task, read)):
            parts.unlabelled.append(str(file.path))
            continue
        told = said or file.part or "all"
        parts.add(of, file.key, read, [str(file.path)], again=file.together, told=told)
    if file.passed_over:
        names = ", ".join(path.name for path in file.passed_over)
        parts.notes.append(f"{file.path.name} is taken as the {part} part, and not {names}")


def _is_unlabelled(task: Task, read: Converted) -> bool:
    """Whether all examples of a user's table have the class −1, as the hub's have without one."""
    if task.suite != OWN_SUITE or task.kind != "classification":
        return False
    every = [example for part in read.examples.values() for example in part]
    return all(isinstance(e, TextExample) and e.label == "-1" for e in every)


def _read_file(task: Task, file: Found, reach: Reach) -> dict[str | None, Converted]:
    """Examples of one file, by the part that it says of them; none where it has no labels."""
    if task.kind == "span":
        read_questions = read_squad if suffix_of(file.path) == ".json" else read_squad_rows
        questions = read_questions(file.path, reach)
        return {None: Converted({}) if questions is None else _checked(task, file, questions)}
    if task.kind == "tagging" and suffix_of(file.path) not in RECORD_FILES:
        columns = read_columns(file.path, file.key, reach, task.layout.choice, task.layout.columns)
        if columns is None:
            return {None: Converted({})}
        require_published(task, file, columns.examples)
        places = (columns.word, columns.tag)
        return {None: Converted({None: columns.examples}, columns.notes, columns.about, places)}
    table = read_table(file.path, task.layout, reach)
    if not table.labelled:
        if task.suite == OWN_SUITE and file.part != "test":
            raise TaskDataError(table.lacking)
        return {None: Converted({})}
    by_part, notes = _by_part(task, file, table)
    said = "" if None in by_part else f", part in {table.part_column!r}"
    read = {part: from_rows(task, rows, file.path.name) for part, rows in by_part.items()}
    for one in read.values():
        require_published(task, file, [e for part in one.examples.values() for e in part])
    return {
        part: Converted(one.examples, (*table.notes, *notes, *one.notes), table.about + said)
        for part, one in read.items()
    }


def _by_part(
    task: Task, file: Found, table: Table
) -> tuple[Mapping[str | None, Sequence[Row]], tuple[str, ...]]:
    """Rows by the part that a column says they are of, if the file is called after none.

    Returns:
        The rows, and a note on those of no part that is known.
    """
    said = [str(row.part).strip().lower() for row in table.rows]
    known = [PARTS.get(name) for name in said]
    if task.suite != OWN_SUITE or file.part is not None or not any(known):
        return {None: table.rows}, ()
    by_part: dict[str | None, list[Row]] = {part: [] for part in known if part}
    strange: Counter[str] = Counter()
    for row, name, part in zip(table.rows, said, known, strict=True):
        if part is None:
            strange[name] += 1
        else:
            by_part[part].append(row)
    left_out = f"{strange.total()} rows of {file.path.name} are left out: their "
    names = ", ".join(map(repr, list(strange)[:_MOST_NAMED]))
    notes = (f"{left_out}{table.part_column} is {names}",) if strange else ()
    return by_part, notes


def _checked(task: Task, file: Found, questions: Sequence[SpanExample]) -> Converted:
    """Questions by language, if none is without an answer that must have one."""
    impossible = sum(question.impossible for question in questions)
    if impossible and task.suite != "squad2":
        raise TaskDataError(
            f"{file.path} has {impossible} questions without an answer, unlike {task.name}; "
            "evaluate it as SQuAD 2.0"
        )
    lost = [q.id for q in questions if q.answers and set(q.starts) == {NOT_FOUND}]
    answered = sum(bool(question.answers) for question in questions)
    if 2 * len(lost) > answered:
        raise TaskDataError(
            f"{file.path} has {len(lost)} of {answered} answers that are nowhere in their context, "
            f"such as that of question {lost[0]!r}; check that contexts and answers belong together"
        )
    lost_some = (
        f"{len(lost)} of {answered} answers of {file.path.name} are nowhere in their context, as "
        f"that of question {lost[0]!r}"
        if lost
        else ""
    )
    notes = (lost_some,) if lost_some else ()
    return Converted(_by_language(task, questions, file.key), notes)


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


def _from_hub(task: Task) -> _Parts:
    source = task.hub
    if source is None:
        raise TaskDataError(
            f"{task.name} has no data set on the hub; give a folder or a file with its examples"
        )
    parts, revision = _Parts(), pinned(source)
    for key, part in source.evaluations.items():
        read = read_hub_part(task, source, part, revision)
        origin = sources_of(task, source, revision)
        parts.add(_usual_part(task), key, _in_languages(task, key, read), origin)
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


def _training_part(task: Task, train: Examples, notes: list[str]) -> list[Example]:
    """Examples to train on: those of the task's language, or of all there are."""
    if task.train_language in train:
        return train[task.train_language]
    if task.train_language and set(train) - {""}:
        notes.append(f"no training part in {task.train_language}: {', '.join(train)} taken")
    return [example for examples in train.values() for example in examples]


def _tuning_part(task: Task, found: _Parts) -> list[Example]:
    """The development part in the language of training: others are to be new to the model."""
    return _training_part(task, found.parts.get("dev", {}), [])


def _scored_part(task: Task, found: _Parts) -> tuple[str, Examples]:
    """Name and examples of the part that is scored; none where no part has labels."""
    usual = _usual_part(task)
    other = "test" if usual == "dev" else "dev"
    first, second = found.parts.get(usual, {}), found.parts.get(other, {})
    if len(second) <= len(first):
        return usual, first
    why = f"the {usual} part has fewer languages" if first else f"no {usual} part has labels"
    found.notes.append(f"scored on the {other} part: {why}")
    return other, second


def _usual_part(task: Task) -> str:
    """The part that papers report: the test part, unless its labels are secret."""
    return "dev" if task.suite in SECRET_TESTS else "test"


def _named(examples: Mapping[str, list[Example]], name: str) -> Examples:
    """Examples whose file names neither language nor variant go by the part's name."""
    return {key or name: values for key, values in examples.items()}

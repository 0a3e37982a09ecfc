"""Examples of the tasks, as read: before any tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kdnas.evaluation.tasks.task import Task

ID_COLUMNS: Final = ("id", "idx", "index", "guid", "uid")
"""Columns that name an example, in lower case."""


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair of texts, with a class name or a number.

    Attributes:
        id: unique in its file, as the file says it, or the number of its row from 1 on; parallel
            files of several languages share ids.
        text: the only, or the first text.
        pair: the second text, where the task has one.
        label: class name, all class names of a text that may have several or none, number of a
            regression, or None where it is not known.
        where: it was read, for messages: file and line.
    """

    id: str
    text: str
    pair: str | None
    label: str | float | tuple[str, ...] | None
    where: str = field(default="", compare=False, repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class, or all of several."""
        return self.label if isinstance(self.label, tuple) else (str(self.label),)

    @property
    def number(self) -> float:
        """The number of a regression.

        Raises:
            ValueError: there is none.
        """
        if self.label is None or isinstance(self.label, tuple):
            raise ValueError(f"example {self.id} has no number")
        return float(self.label)

    def asked(self) -> dict[str, Any]:
        """What a model is asked, as plain JSON."""
        return {"text": self.text} if self.pair is None else {"text": self.text, "pair": self.pair}


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of words with a tag each, spans in IOB2.

    Attributes:
        id: unique in its file.
        tokens: the words.
        tags: of each word one.
        where: its first word was read, for messages: file and line.

    Raises:
        ValueError: words and tags are not equally many.
    """

    id: str
    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    where: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.tags):
            raise ValueError(f"{len(self.tokens)} tokens have {len(self.tags)} tags in {self.id}")

    def asked(self) -> dict[str, Any]:
        """What a model is asked, as plain JSON."""
        return {"words": list(self.tokens)}


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question about a context, answered by spans of it.

    Attributes:
        id: of the question.
        question: its text.
        context: the text that is asked about.
        answers: accepted answers, each a span of the context; none where it has no answer.
        starts: first character of each answer in the context; −1 for one that is not in it.
        impossible: the context does not answer the question (SQuAD 2.0).
        language: of the answers, where a task's rules of comparing them depend on it (MLQA).
        where: it was read, for messages: the file, and what is counted in it.
        moved: answers that begin elsewhere than was said, and were looked for.
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    impossible: bool
    language: str | None = None
    where: str = field(default="", compare=False, repr=False)
    moved: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.starts):
            raise ValueError(
                f"{len(self.answers)} answers have {len(self.starts)} starts in {self.id}"
            )

    def asked(self) -> dict[str, Any]:
        """What a model is asked, as plain JSON."""
        return {"question": self.question, "context": self.context}


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query, and which passages of the task's answer it.

    Attributes:
        id: of the query.
        query: its text.
        grades: name of a passage → how well it answers, above 0; others do not.
    """

    id: str
    query: str
    grades: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.grades or min(self.grades.values()) <= 0:
            raise ValueError(f"query {self.id} needs passages with grades above 0")

    def asked(self) -> dict[str, Any]:
        """What a model is asked, as plain JSON."""
        return {"query": self.query}


Example: TypeAlias = TextExample | TaggedExample | SpanExample | RetrievalExample


def places(examples: Iterable[Example]) -> str:
    """Say where some examples were read, for messages; nothing where that is not known.

    Returns:
        Such as `` (train.tsv, line 2, …)``, with a blank before it.
    """
    where = next((e.where for e in examples if not isinstance(e, RetrievalExample)), "")
    return f" ({where}, …)" if where else ""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file, or a part of a data set, was read.

    Attributes:
        source: which.
        part: ``train``, ``dev`` or ``test``; ``all`` of a file that is not called after one.
        examples: with a label, that are in it.
        about: how it was understood, in words; empty where its layout leaves nothing to find out.
        first: its first example, in words.
    """

    source: str
    part: str
    examples: int
    about: str = ""
    first: str = ""


@dataclass(frozen=True, slots=True)
class TaskData:
    """What a task is trained on and evaluated on.

    Attributes:
        task: the task.
        train: examples to fine-tune on.
        evaluations: labelled examples that are scored, by a name: ``dev``, ``test``, ``matched``, a
            language. The first is the one whose main metric counts, unless the suite takes a mean.
        labels: class names or tags in the order of the classifier's outputs; None for regression
            and spans.
        official_split: False where train and evaluation were cut from one part by us.
        sources: files or data sets that were read.
        notes: what a reader of the scores should know, a sentence each.
        tuning: the development part where the test part is scored; ``data.splitting.for_tuning``
            holds out something else where this is empty.
        readings: of all that was read, used or not.
        passages: of a retrieval, name → text of each of which queries may be answered by.
    """

    task: Task
    train: Sequence[Example]
    evaluations: Mapping[str, Sequence[Example]]
    labels: tuple[str, ...] | None
    official_split: bool
    sources: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    tuning: Sequence[Example] = ()
    readings: tuple[Reading, ...] = ()
    passages: Mapping[str, str] = field(default_factory=dict)

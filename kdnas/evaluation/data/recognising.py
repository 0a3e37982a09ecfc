"""Whether files of words and tags are a published data set, told by what is in them.

Any folder may hold files called ``train.conll`` and ``test.conll``. A figure bears the name of a
benchmark only if the sentences, the words and the types of spans are as many and those that it was
published with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.finding import Found
from kdnas.evaluation.tasks.examples import Example, TaggedExample
from kdnas.evaluation.tasks.task import Task, simple
from kdnas.specs.evaluation import OWN_SUITE

NEAREST: Final = 3
"""Folders above a file whose names may be the task's."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a part.

    Attributes:
        sentences: in it, document marks left out.
        words: in it; None where they are not told.
    """

    sentences: int
    words: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A data set as it was published.

    Attributes:
        types: of its spans.
        sizes: part and language → size; the language is None of a set in one.
        file_names: how files are called that are of this set by their names alone.
        other_names: how files of another set are called that has as many sentences and words.
    """

    types: frozenset[str]
    sizes: Mapping[tuple[str, str | None], Size]
    file_names: str | None = None
    other_names: str | None = None


def _panx() -> dict[tuple[str, str | None], Size]:
    """Balanced parts of WikiANN (Rahimi et al. 2019): the scored ones are of one size."""
    languages = {
        (
            20000,
            10000,
        ): "en ar bg de el es fa fi fr he hu id it ja ko nl pl pt ro ru th tr uk vi zh",
        (20000, 1000): "ms ur",
        (15000, 10000): "et",
        (15000, 1000): "ta",
        (10000, 10000): "eu ka lt",
        (10000, 1000): "az bn ml tl",
        (5000, 1000): "af hi mr",
        (1000, 1000): "kk sw te",
        (100, 100): "gu jv my pa qu yo",
    }
    return {
        (part, language): Size(train if part == "train" else scored)
        for (train, scored), codes in languages.items()
        for language in codes.split()
        for part in ("train", "dev", "test")
    }


PUBLISHED: Final[Mapping[str, PublishedSet]] = {
    "CoNLL-2003": PublishedSet(
        frozenset({"LOC", "MISC", "ORG", "PER"}),
        {
            ("train", None): Size(14041, 203621),
            ("dev", None): Size(3250, 51362),
            ("test", None): Size(3453, 46435),
        },
        r"eng\.(train|testa|testb)",
        r"conllpp",  # Wang et al. 2019: the same sentences with other tags
    ),
    "WNUT-17": PublishedSet(
        frozenset({"corporation", "creative-work", "group", "location", "person", "product"}),
        {
            ("train", None): Size(3394, 62730),
            ("dev", None): Size(1009, 15733),
            ("test", None): Size(1287, 23394),
        },
        r"wnut17train|emerging\.(dev|test)",
    ),
    "PAN-X": PublishedSet(frozenset({"LOC", "ORG", "PER"}), _panx()),
}
"""Tjong Kim Sang and De Meulder 2003, Derczynski et al. 2017, Rahimi et al. 2019."""


class OtherDataError(TaskDataError):
    """Files that any folder may hold are not those that a benchmark has published.

    Attributes:
        is_named: their names say that they are.
    """

    def __init__(self, message: str, is_named: bool = False) -> None:
        super().__init__(message)
        self.is_named = is_named


def is_named(task: Task, files: Sequence[Found]) -> bool:
    """Whether names alone say that files are of a task, and not of any other of its kind."""
    known = PUBLISHED.get(task.name)
    if known is None:
        return True
    for file in files:
        if known.file_names and re.match(known.file_names, file.path.name, re.IGNORECASE):
            return True
        folders = [simple(folder.name) for folder in file.path.absolute().parents[:NEAREST]]
        if any(folder.startswith(name) for folder in folders for name in task.layout.folders):
            return True
    return False


def require_published(task: Task, file: Found, examples: Sequence[Example]) -> None:
    """Refuse a file that is not what a benchmark has published under its name.

    Raises:
        OtherDataError: it has other counts, or other types of spans.
    """
    known = PUBLISHED.get(task.name)
    if known is None or task.suite == OWN_SUITE:
        return
    if known.other_names and re.search(known.other_names, file.path.name, re.IGNORECASE):
        raise OtherDataError(
            f"{file.path} is another data set than {task.name}, by its name; evaluate it as NER, "
            f"with `suite: ner`, `tasks: NER` and `data_dir: {file.path.parent}`",
            is_named=False,
        )
    told = _how_it_differs(known, file, [e for e in examples if isinstance(e, TaggedExample)])
    if told:
        raise OtherDataError(
            f"{file.path} is not the {file.part or 'test'} part of {task.name} as published: "
            f"{told}; evaluate it as NER, with `suite: ner`, `tasks: NER` and "
            f"`data_dir: {file.path.parent}`",
            is_named(task, [file]),
        )


def _how_it_differs(known: PublishedSet, file: Found, sentences: Sequence[TaggedExample]) -> str:
    """In what a file is not what was published, in words; empty where it is that."""
    words = sum(len(one.tokens) for one in sentences)
    types = {tag[2:] for one in sentences for tag in one.tags if tag != "O"}
    wanted = known.sizes.get((file.part or "test", file.key))
    if wanted is None:
        return "no language that it has is in the name"
    if (len(sentences), wanted.words and words) != (wanted.sentences, wanted.words):
        told = f"its sentences number {len(sentences)} instead of {wanted.sentences}"
        return f"{told}, its words {words} instead of {wanted.words}" if wanted.words else told
    if types != known.types:
        return f"spans of {_listed(types)} instead of {_listed(known.types)}"
    return ""


def _listed(types: set[str] | frozenset[str], most: int = 8) -> str:
    names = sorted(types)
    return ", ".join(names[:most]) + (" …" if len(names) > most else "") or "no type"

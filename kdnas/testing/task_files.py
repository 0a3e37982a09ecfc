"""Files of tasks, and what was read of them, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample


def file(path: Path, *lines: str) -> Path:
    """Write lines into a file, in folders that need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def texts(examples: Sequence[Example]) -> list[str]:
    """First texts of examples."""
    return [e.text for e in examples if isinstance(e, TextExample)]


def counts(data: TaskData) -> tuple[int, dict[str, int]]:
    """How many examples are learned from, and are in each evaluation set."""
    return len(data.train), {name: len(part) for name, part in data.evaluations.items()}


def told(notes: Iterable[str]) -> tuple[str, ...]:
    """What is noted of data, but for that files of a few lines are not a whole benchmark."""
    return tuple(note for note in notes if "'s as published " not in note)


def is_whole(data: TaskData) -> bool:
    """Whether a split is the official one, or would be if it had as many examples."""
    return not any(note.startswith("not the official split") for note in told(data.notes)) and (
        data.official_split == (told(data.notes) == data.notes)
    )

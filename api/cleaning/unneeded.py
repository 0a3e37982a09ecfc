"""One thing that nothing needs any more, and what others need, as far as it was asked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from kdnas.errors import StoreError
from kdnas.in_use import set_aside


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Something to be removed.

    Attributes:
        category: under which it is told.
        name: what it is called, or where it is.
        count: how many it stands for.
        num_bytes: its size; 0 for rows of the database.
        remove: removes it and returns how many are gone: 0 if it is needed after all, or another
            process was quicker.
    """

    category: str
    name: str
    num_bytes: int
    remove: Callable[[], int] = field(repr=False)
    count: int = 1


@dataclass(frozen=True, slots=True)
class Needs:
    """What stored jobs need.

    Attributes:
        words: all that they mention (``kdnas.db.repository.references``).
        jobs: ids of all of them.
        over: ids of those that nobody goes on with, and nobody works on.
    """

    words: Collection[str]
    jobs: Collection[str]
    over: Collection[str]

    def is_gone(self, job_id: str) -> bool:
        """Whether there is no such job any more, and no other one mentions it."""
        return job_id not in self.jobs and job_id not in self.words


def extent(path: Path) -> tuple[int, float]:
    """Bytes of a file, or of all below a folder, and when any of it last changed.

    What vanishes meanwhile counts for nothing.
    """
    num_bytes, newest = 0, 0.0
    waiting = [path]
    while waiting:
        current = waiting.pop()
        try:
            about = current.lstat()
            newest = max(newest, about.st_mtime)
            if current.is_dir() and not current.is_symlink():
                waiting += [Path(entry.path) for entry in os.scandir(current)]
            else:
                num_bytes += about.st_size
        except FileNotFoundError:
            continue
    return num_bytes, newest


def remove_old(path: Path, unused_since: float) -> int:
    """Remove a file or folder that has not changed since a moment: out of sight first, then away.

    A kill in between leaves it under a name that nobody reads.

    Raises:
        StoreError: it cannot be removed.
    """
    if extent(path)[1] > unused_since:
        return 0
    try:
        aside = set_aside(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(
            f"{path} cannot be removed: {error.strerror}; check who owns it and its folder"
        ) from error
    return delete(aside)


def delete(path: Path) -> int:
    """Delete what was set aside, perhaps together with another process; returns 1.

    Raises:
        StoreError: a part of it cannot be deleted.
    """

    def failed(_: object, name: str, error: BaseException) -> None:
        if not isinstance(error, FileNotFoundError):
            raise StoreError(f"{name} cannot be removed: {error}; remove it yourself") from error

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=lambda function, name, info: failed(function, name, info[1]))
    else:
        path.unlink(missing_ok=True)
    return 1

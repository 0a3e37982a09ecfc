"""Which folders of files processes use: locks that end with their process, and times of last use.

A folder is used under its *sign*, a file in it that all of its readers open first. Who reads holds
a shared lock on that file, and its time of change says when somebody last did. Who wants the folder
away asks for the lock alone, looks at the time, and renames the folder while it has both: nobody
ever finds a part of it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

REMOVED_PREFIX: Final = ".removed-"
"""What begins so was taken away, and waits for being deleted."""
_MOST_HELD: Final = 64
"""Descriptors of a process; what was used before so many others counts by its time alone."""

_held: OrderedDict[tuple[int, int], int] = OrderedDict()
_held_lock = threading.Lock()


def note_use(sign: Path, *, hold: bool = False) -> bool:
    """Note that a folder is used now.

    Args:
        sign: its sign.
        hold: whether it is used as long as this process lives.

    Returns:
        Whether the folder is there. If so, nobody takes it away within the time that
        :func:`take_away` is given, or while it is held.
    """
    while True:
        try:
            descriptor = os.open(sign, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            with suppress(OSError):  # a file system without locks: the time is noted all the same
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for the moment of a renaming
            if not _is_same(descriptor, sign):
                continue
            with suppress(OSError):  # somebody else's file, or a disk that cannot be written
                os.utime(descriptor)
            if hold:
                descriptor = _keep(descriptor)
            return True
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _keep(descriptor: int) -> int:
    """Keep a descriptor open, and return the one to close: -1 is none."""
    about = os.fstat(descriptor)
    with _held_lock:
        key = (about.st_dev, about.st_ino)
        before = _held.pop(key, -1)
        _held[key] = descriptor
        if before < 0 and len(_held) > _MOST_HELD:
            _, before = _held.popitem(last=False)
    return before


def is_held(sign: Path) -> bool:
    """Whether a living process holds a folder, by its sign."""
    try:
        descriptor = os.open(sign, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def take_away(sign: Path, unused_since: float) -> Path | None:
    """Rename a folder so that nobody finds it any more, unless it is or was used.

    Args:
        sign: its sign.
        unused_since: seconds since 1970; what was used later is left where it is.

    Returns:
        Where it is now, beside where it was; None if it is left, or is gone already.
    """
    folder = sign.parent
    try:
        descriptor = os.open(sign, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # in use; or nobody can say on this file system
            return None
        if os.fstat(descriptor).st_mtime > unused_since or not _is_same(descriptor, sign):
            return None
        return set_aside(folder)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to a name by which nobody looks for it, in one step."""
    aside = path.with_name(f"{REMOVED_PREFIX}{uuid.uuid4().hex}")
    path.rename(aside)
    return aside


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False

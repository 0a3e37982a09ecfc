"""What a pattern of a shell matches, with an end to what is looked at.

A pattern is short and may still have no end: ``**/`` many times over, or links that lead around.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kdnas.errors import CorpusError

MOST_MATCHES = 100_000
"""Of a glob: one from the root of a machine has no end."""
MOST_NAMES = 300_000
"""In folders, that are looked at for one glob: once for each of its parts at most."""
MOST_PARTS = 100
"""Between slashes, from the first with a wildcard on."""


def split_glob(pattern: Path) -> tuple[Path, tuple[str, ...]]:
    """Return where a glob begins, and its parts from the first with a wildcard on."""
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    return Path(*pattern.parts[:fixed]), pattern.parts[fixed:]


def matches(pattern: Path, name: str) -> list[Path]:
    """List what a glob matches, as a shell does: hidden names only where the pattern has the dot.

    ``**`` stands for any number of folders, of which none is entered by a link.

    Args:
        pattern: with a wildcard.
        name: as its user wrote it, for messages.

    Raises:
        CorpusError: it matches, or looks at, too much.
    """
    start, parts = split_glob(pattern)
    if len(parts) > MOST_PARTS:
        raise CorpusError(
            f"the glob {name!r} has {len(parts)} parts; give at most {MOST_PARTS}, or a folder"
        )
    found: set[Path] = set()
    try:
        for match in _Walk(name).matches(str(start), parts):
            found.add(Path(match))
            if len(found) > MOST_MATCHES:
                raise CorpusError(
                    f"more than {MOST_MATCHES} files match the glob {name!r}; name their folder"
                )
    except RecursionError:
        raise CorpusError(
            f"the glob {name!r} leads through folders that are nested too deeply; name a folder"
        ) from None
    return sorted(found)


class _Walk:
    """Through folders, with a count of the names in them; paths are texts, which is far faster."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = 0
        self._done: set[tuple[str, int]] = set()

    def matches(self, folder: str, parts: tuple[str, ...]) -> Iterator[str]:
        """What the parts match below a folder, the last ones of a pattern; once for each folder.

        ``**`` comes to the same folder with the same parts left in very many ways.
        """
        if (folder, len(parts)) in self._done:
            return
        self._done.add((folder, len(parts)))
        if not parts:
            yield folder
        elif parts[0] == "**":
            yield from self._at_any_depth(folder, parts)
        elif not glob.has_magic(parts[0]):
            place = os.path.join(folder, parts[0])  # noqa: PTH118 (a text)
            if _is_so(Path(place).exists):
                yield from self.matches(place, parts[1:])
        else:
            for entry in self._entries(folder, parts[0].startswith(".")):
                if not fnmatch.fnmatch(entry.name, parts[0]):
                    continue
                if len(parts) == 1 or _is_so(entry.is_dir):
                    yield from self.matches(entry.path, parts[1:])

    def _at_any_depth(self, folder: str, parts: tuple[str, ...]) -> Iterator[str]:
        if parts[1:]:
            yield from self.matches(folder, parts[1:])
        for entry in self._entries(folder, False):
            if not parts[1:]:
                yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from self.matches(entry.path, parts)

    def _entries(self, folder: str, with_hidden: bool) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    self._seen += 1
                    if self._seen > MOST_NAMES:
                        raise CorpusError(
                            f"the glob {self._name!r} looks at more than {MOST_NAMES} names; "
                            "name a folder, or give a pattern with fewer wildcards"
                        )
                    if with_hidden or not entry.name.startswith("."):
                        yield entry
        except OSError:
            return  # as a shell: what is no folder, or closed, matches nothing


def _is_so(question: Callable[[], bool]) -> bool:
    """Ask a file system; of links in a circle, of what is closed and of names too long, no."""
    try:
        return question()
    except OSError:
        return False

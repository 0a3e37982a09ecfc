"""Files below data roots in the way of an fsspec file system, as far as checkpoints need one."""

from __future__ import annotations

import os
import shutil
from io import BufferedReader, BufferedWriter
from pathlib import Path

from kdnas.reach import Reach, new_file


class ReachedFiles:
    """A local file system that follows no link out of reach, whoever puts it there.

    Names and meanings are fsspec's.

    Args:
        reach: limited to some folders.
    """

    protocol = "file"

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def invalidate_cache(self) -> None:
        """There is none."""

    def ls(self, path: str, *, detail: bool = False) -> list[str]:
        """List paths of what is in a folder."""
        return [str(child) for child in self._reach.children(Path(path))]

    def exists(self, path: str) -> bool:
        """Whether something has this name."""
        try:
            with self._reach.folder(Path(path).parent) as folder:
                os.stat(Path(path).name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def makedirs(self, path: str, *, exist_ok: bool = False) -> None:
        """Make a folder and those above it."""
        with self._reach.folder(Path(path), create=True):
            pass

    def open(self, path: str, mode: str) -> BufferedReader | BufferedWriter:
        """Open a file: ``rb``, or ``wb`` for one that takes the place of what has its name."""
        if mode == "rb":
            return self._reach.open(Path(path))
        with self._reach.folder(Path(path).parent) as folder:
            return new_file(Path(path).name, folder)

    def cat_file(self, path: str) -> bytes:
        """Read a file."""
        with self._reach.open(Path(path)) as stream:
            return stream.read()

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        with self._reach.folder(Path(path).parent) as folder:
            os.unlink(Path(path).name, dir_fd=folder)

    def rm(self, path: str, *, recursive: bool = False) -> None:
        """Remove a folder with all that is in it; links in it are removed, not followed."""
        with self._reach.folder(Path(path).parent) as folder:
            shutil.rmtree(Path(path).name, dir_fd=folder)

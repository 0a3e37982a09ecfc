"""Which folders of this machine a request may lead to, held to whenever something is opened.

Who may use the service may often write below its data roots as well: what was a file when a request
was checked may be a symbolic link to somewhere else when it is read. So the path is checked again
where it is opened: its links are followed first, which only tells where it ought to lie, and from
the root on that place is then entered folder by folder, with no link followed any more. Whatever is
swapped in between is therefore noticed, and what was opened lies below a root.

Links within the roots keep their meaning. A hard link is a file like any other.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path

from kdnas.errors import RequestError
from kdnas.paths import expanded

ATTEMPTS = 3
"""So often a path that changes while it is entered is tried; honest renamings are over by then."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Where the system can, a folder on the way need not be readable, as in any other path.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _ChangedError(Exception):
    """There is a link where a moment ago there was none."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How paths that somebody named are opened.

    Attributes:
        roots: folders, their links followed, below which everything must lie; None is no limit.
        apart: folders, their links followed, that are out of reach although they lie below a root;
            but what has a root below them in turn is not.
    """

    roots: tuple[Path, ...] | None = None
    apart: tuple[Path, ...] = ()

    @classmethod
    def below(cls, roots: Iterable[Path], apart: Iterable[Path] = ()) -> Reach:
        """Limit it to what lies below some folders, which need not exist, and not below others."""
        return cls(_followed(roots), _followed(apart))

    @property
    def limited(self) -> bool:
        """Whether there is anything that it does not lead to."""
        return self.roots is not None

    def and_folder(self, folder: Path) -> Reach:
        """Return it with one folder more, unless that is below a root by its name already.

        No link is followed in the folder's own name: who could put one there could lead anywhere.
        """
        if self.leads_to(folder):
            return self
        real = folder.parent.resolve() / folder.name
        return self if self.leads_to(real) else Reach((*(self.roots or ()), real), self.apart)

    def leads_to(self, real: Path) -> bool:
        """Whether a path, whose links have been followed, is within reach."""
        return self.roots is None or self._root_of(real) is not None

    def require(self, path: Path) -> None:
        """Refuse a path that leads out at present; opening it looks again.

        Raises:
            RequestError: it does.
        """
        if self.roots is not None:
            self._within(path)

    def open(self, path: Path) -> BufferedReader:
        """Open a file to read it.

        Raises:
            RequestError: it leads out.
            OSError: there is no such file, it is something else than a file, or it cannot be read.
        """
        if self.roots is None:
            # Opened without waiting: nobody may ever write to a pipe, and devices have no end.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return os.fdopen(_a_file(descriptor), "rb")
        return os.fdopen(self._reached(path, _open_file), "rb")

    def stat(self, path: Path) -> os.stat_result:
        """Say of a file what the system knows of it; raises what :meth:`open` does."""
        if self.roots is None:
            return path.stat()
        with self.open(path) as stream:
            return os.fstat(stream.fileno())

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file to a place of this process's own; raises what :meth:`open` does."""
        with self.open(path) as source, to.open("wb") as target:
            shutil.copyfileobj(source, target)

    @contextmanager
    def folder(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """Hold a folder open: whatever is put in the place of its name, the descriptor stays it.

        Args:
            path: of the folder.
            create: make it, and those above it, if it is not there.

        Raises:
            RequestError: it leads out.
            OSError: there is no such folder, or it cannot be made or read.
        """
        if self.roots is None:
            if create:
                path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            descriptor = self._reached(path, lambda root, parts: _enter(root, parts, create))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def children(self, folder: Path) -> list[Path]:
        """List what lies in a folder, sorted; raises what :meth:`folder` does."""
        if self.roots is None:
            return sorted(folder.iterdir())
        with self.folder(folder) as descriptor:
            return sorted(folder / name for name in os.listdir(descriptor))  # noqa: PTH208 (no path)

    def files_below(self, folder: Path) -> list[Path]:
        """List the files below a folder, sorted; links to folders are not followed, as in rglob.

        Raises what :meth:`folder` does.
        """
        with self.folder(folder) as descriptor:
            found = [
                folder / place / name
                for place, _, names, _ in os.fwalk(".", dir_fd=descriptor)
                for name in names
            ]
        return sorted(path for path in found if path.is_file())

    def put(self, source: Path, target: Path, draft: str, *, replaces: bool = False) -> None:
        """Copy a folder of this process's own to a place that is new or an empty folder.

        Args:
            source: the folder; it holds files and folders alone.
            target: where it appears, whole or not at all.
            draft: name beside it under which it is written first.
            replaces: whether a folder with something in it gives way, once the copy is whole.

        Raises:
            RequestError: the place leads out.
            OSError: it is no empty folder, or cannot be written.
        """
        real = Path(os.path.realpath(target))
        with self.folder(real.parent, create=True) as parent:
            before = f"{draft}.before"

            def put_back() -> None:
                """What was to give way, where what replaces it never came: ours may have ended."""
                with suppress(OSError):  # it is not there, or its place is taken
                    os.rename(before, real.name, src_dir_fd=parent, dst_dir_fd=parent)

            put_back()
            for left in (draft, before):
                shutil.rmtree(left, ignore_errors=True, dir_fd=parent)
            os.mkdir(draft, dir_fd=parent)
            try:
                _copy_tree(source, draft, parent)
                with suppress(FileNotFoundError):
                    if replaces:
                        os.rename(real.name, before, src_dir_fd=parent, dst_dir_fd=parent)
                    else:
                        os.rmdir(real.name, dir_fd=parent)
                os.rename(draft, real.name, src_dir_fd=parent, dst_dir_fd=parent)
                shutil.rmtree(before, ignore_errors=True, dir_fd=parent)
            except BaseException:
                put_back()
                shutil.rmtree(draft, ignore_errors=True, dir_fd=parent)
                raise

    def _reached(self, path: Path, enter: Callable[[Path, tuple[str, ...]], int]) -> int:
        for _ in range(ATTEMPTS):
            root, parts = self._within(path)
            try:
                return enter(root, parts)
            except _ChangedError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from None
        raise self._refusal(path)

    def _within(self, path: Path) -> tuple[Path, tuple[str, ...]]:
        """Return the root that a path lies below at present, and the way from there, link-free."""
        real = Path(os.path.realpath(path))
        root = self._root_of(real)
        if root is None:
            raise self._refusal(path)
        return root, real.relative_to(root).parts

    def _root_of(self, real: Path) -> Path | None:
        """The root that decides; of all folders that a path lies below that is the deepest one."""
        found = [root for root in self.roots or () if real.is_relative_to(root)]
        root = max(found, key=_depth, default=None)
        if root is None or any(
            real.is_relative_to(folder) and _depth(folder) > _depth(root) for folder in self.apart
        ):
            return None
        return root

    def _refusal(self, path: Path) -> RequestError:
        """Word it, without a name that is known only from a folder out of reach."""
        path = path.absolute()
        ways = (*reversed(path.parents), path)
        inside = [self._root_of(Path(os.path.realpath(way))) is not None for way in ways]
        leaves = (
            way
            for way, above, here in zip(ways[1:], inside, inside[1:], strict=False)
            if above and not here
        )
        known = ", ".join(map(str, self.roots or ()))
        return RequestError(
            f"{str(next(leaves, path))!r} leads out of the folders that requests may name "
            f"({known}), so it is not opened; put the files themselves below one of them, or start "
            "the service with another KDNAS_DATA_ROOTS"
        )


ANYWHERE = Reach()
"""No limit: what the user of a command line may open, the command may."""


def _followed(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(expanded(folder).resolve() for folder in folders)


def _depth(folder: Path) -> int:
    return len(folder.parts)


def new_file(name: str, folder: int) -> BufferedWriter:
    """Begin a file in a folder that is held open, in the place of whatever had its name.

    Raises:
        OSError: it cannot be written.
    """
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=folder), "wb")


def _open_file(root: Path, parts: tuple[str, ...]) -> int:
    *folders, name = parts or (".",)
    folder = _enter(root, tuple(folders), create=False, flags=_STEP)
    try:
        descriptor = _open_at(name, folder, _FILE)
    finally:
        os.close(folder)
    return _a_file(descriptor)


def _a_file(descriptor: int) -> int:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "it is no file")
    return descriptor


def _enter(root: Path, parts: tuple[str, ...], create: bool, flags: int = _FOLDER) -> int:
    """Open a folder by the way to it from a root."""
    if create:
        root.mkdir(parents=True, exist_ok=True)
    here = os.open(root, _STEP if parts else flags)
    for place, part in enumerate(parts, 1):
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            there = _open_at(part, here, flags if place == len(parts) else _STEP)
        finally:
            os.close(here)
        here = there
    return here


def _open_at(name: str, folder: int, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISLNK(found.st_mode):
                    raise
            raise _ChangedError from None
        raise


def _copy_tree(source: Path, name: str, parent: int) -> None:
    """Copy what is in a folder into one that was just made."""
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for child in sorted(source.iterdir()):
            if child.is_dir():
                os.mkdir(child.name, dir_fd=folder)
                _copy_tree(child, child.name, folder)
            else:
                with child.open("rb") as stream, new_file(child.name, folder) as copied:
                    shutil.copyfileobj(stream, copied)
    finally:
        os.close(folder)

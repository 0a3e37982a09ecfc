"""Backups of an SQLite database: a file that is whole, checked, and of one moment.

PostgreSQL has tools of its own, ``pg_dump`` and ``pg_restore``, which ``docs/operations.md`` shows.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import kdnas
from kdnas.db import migrate
from kdnas.db.engine import parse_url, shown, worded
from kdnas.errors import ConflictError, DatabaseError, NotFoundError, SpecError

_DAMAGED: Final = ("malformed", "not a database")
_BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a file; it would take them for those of another one in its place."""
_IN_USE_SECONDS: Final = 3.0
"""So long a restore waits for a transaction to end, before it says that the file is in use."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup as it was checked.

    Attributes:
        path: the file.
        revision: of the tables in it.
        num_bytes: its size.
    """

    path: Path
    revision: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a restore.

    Attributes:
        revision: of the tables that were restored.
        kept: where the database that was there before is now; None if there was none.
    """

    revision: str
    kept: Path | None


def back_up(database_url: str, to: Path) -> Backup:
    """Copy an SQLite database to a new file, as it is at one moment; others may go on writing.

    Args:
        database_url: of the database.
        to: appears when it is whole and was checked, and is never overwritten.

    Raises:
        SpecError: the database is PostgreSQL.
        NotFoundError: there is no database, or no folder to write to.
        ConflictError: there is such a file already.
        DatabaseError: the database is damaged or empty, or the copy cannot be written.
    """
    source = _file_of(database_url)
    if not source.is_file():
        raise NotFoundError(
            f"there is no database {source} to back up; check KDNAS_HOME and KDNAS_DATABASE_URL"
        )
    if to.exists() or to.is_symlink():
        raise ConflictError(f"{to} exists, and a backup overwrites nothing; name another file")
    if not to.parent.is_dir():
        raise NotFoundError(f"there is no folder {to.parent} for the backup; make it first")
    with _draft_of(to) as draft:
        revision = _copy(source, draft)
        draft.chmod(source.stat().st_mode)
        num_bytes = draft.stat().st_size
        try:
            os.link(draft, to)
        except FileExistsError:
            raise ConflictError(
                f"{to} was made by somebody else meanwhile; name another file"
            ) from None
        except OSError:  # a file system without hard links
            draft.rename(to)
        _sync(to.parent)
    return Backup(to, revision, num_bytes)


def restore(database_url: str, source: Path) -> Restored:
    """Put a backup in the place of an SQLite database that nobody uses.

    It is copied and checked first, and takes its place in one step; what was there is kept beside.

    Args:
        database_url: of the database, which need not be there.
        source: the backup; an older revision is migrated when the database is next used.

    Raises:
        SpecError: the database is PostgreSQL.
        NotFoundError: there is no such backup.
        ConflictError: a process has the database open.
        DatabaseError: the backup is damaged, no database of kdnas, or newer than this program; or
            the copy cannot be written.
    """
    target = _file_of(database_url)
    if not source.is_file():
        raise NotFoundError(f"there is no backup {source}; check the path")
    if target.exists() and target.samefile(source):
        raise SpecError(f"{source} is the database itself; name a backup of it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _draft_of(target) as draft:
        revision = _copy(source, draft)
        draft.chmod((target if target.exists() else source).stat().st_mode)
        kept = _take_place(draft, target) if target.exists() else None
        if kept is None:
            draft.rename(target)
        _sync(target.parent)
    return Restored(revision, kept)


def _file_of(database_url: str) -> Path:
    """The file of an SQLite database; SpecError names the tools for another one."""
    url = parse_url(database_url)
    if url.get_backend_name() != "sqlite":
        raise SpecError(
            f"database {shown(url)} is PostgreSQL, which is backed up by pg_dump and restored by "
            "pg_restore; docs/operations.md has the commands"
        )
    return Path(str(url.database)).absolute()


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """A name beside the target for what is to take its place; nothing is left there at the end."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.draft")
    try:
        yield draft
    except OSError as error:
        raise DatabaseError(
            f"{target} could not be written ({error.strerror or error}), and nothing was changed; "
            "make room there or make it writable"
        ) from error
    finally:
        for name in ("", *_BESIDE):
            draft.with_name(draft.name + name).unlink(missing_ok=True)


def _copy(source: Path, draft: Path) -> str:
    """Copy a database as it is at one moment, check the copy, and return its revision."""
    url = parse_url(f"sqlite:///{source}")
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as there,
            closing(sqlite3.connect(draft, isolation_level=None)) as copy,
        ):
            there.backup(copy)  # in one step, so that no writer makes it begin anew
            copy.execute("PRAGMA journal_mode = DELETE")  # else it would want files beside it
            (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise DatabaseError(f"database {shown(url)} is damaged ({' '.join(found.split())})")
            return _revision(copy, source)
    except sqlite3.Error as error:
        said = str(error)
        if any(sign in said for sign in _DAMAGED):
            raise worded(error, url) from error
        raise DatabaseError(
            f"{source} could not be copied to {draft.parent} ({said}), and nothing was changed; "
            "check the space and the permissions there"
        ) from error


def _revision(copy: sqlite3.Connection, source: Path) -> str:
    tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master")}
    rows = (
        copy.execute("SELECT version_num FROM alembic_version").fetchall()
        if {"alembic_version", "events"} <= tables
        else []
    )
    if not rows:
        raise DatabaseError(f"{source} is no database of kdnas, or was never used; name another")
    revision = str(rows[0][0])
    if not migrate.is_known(revision):
        raise DatabaseError(
            f"{source} is at revision {revision}, which kdnas {kdnas.__version__} does not know "
            f"(it knows up to {migrate.head()}); install a newer kdnas"
        )
    return revision


def _take_place(draft: Path, target: Path) -> Path:
    """Let a draft take the place of a database that nobody has open; returns where that is now."""
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    kept = target.with_name(f"{target.name}.before-restore-{moment}")
    with closing(sqlite3.connect(target, _IN_USE_SECONDS, isolation_level=None)) as alone:
        try:
            # Leaving the write-ahead log needs the file alone, and ends in a file that is whole.
            alone.execute("PRAGMA journal_mode = DELETE")
            alone.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise ConflictError(
                    f"database {target} is in use; stop the service and every other kdnas that "
                    "works with it, and restore again"
                ) from error
            if not any(sign in str(error) for sign in _DAMAGED):
                raise worded(error, parse_url(f"sqlite:///{target}")) from error
        try:
            os.link(target, kept)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            target.rename(kept)
        for name in _BESIDE:  # of a damaged one
            with suppress(FileNotFoundError):
                target.with_name(target.name + name).rename(kept.with_name(kept.name + name))
        draft.replace(target)
    return kept


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

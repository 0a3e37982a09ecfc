"""Backups of SQLite: whole or not there, of one moment, and never in the place of something."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from kdnas.db import migrate
from kdnas.db.backup import back_up, restore
from kdnas.db.engine import Database, parse_url
from kdnas.errors import ConflictError, DatabaseError, NotFoundError, SpecError
from kdnas.testing.job_rows import make_job
from kdnas.testing.small_disk import small_disk

KILLED = """
import os, signal, sys
from pathlib import Path
from kdnas.db import backup

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

backup._revision = killed
getattr(backup, sys.argv[1])(sys.argv[2], Path(sys.argv[3]))
"""


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def num_jobs(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
    return int(count)


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def file(sqlite_template: Path, tmp_path: Path) -> Path:
    """A database with a job in it, which nobody has open."""
    (tmp_path / "home").mkdir()
    copied = Path(shutil.copy(sqlite_template, tmp_path / "home" / "kdnas.db"))
    with Database(parse_url(url_of(copied))) as database:
        make_job(database)
    return copied


@pytest.fixture
def backup(file: Path, tmp_path: Path) -> Path:
    """A backup of it, to which a second job was added since."""
    made = back_up(url_of(file), tmp_path / "kdnas.backup.db").path
    with Database(parse_url(url_of(file))) as database:
        make_job(database)
    return made


def test_a_backup_is_one_file_with_all_that_was_committed(file: Path, tmp_path: Path) -> None:
    with Database(parse_url(url_of(file))) as database:
        make_job(database)  # still in the write-ahead log
        assert file.with_name("kdnas.db-wal").stat().st_size
        made = back_up(url_of(file), tmp_path / "copy.db")
    assert made.revision == migrate.head()
    assert made.num_bytes == made.path.stat().st_size
    assert num_jobs(made.path) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "home"]
    assert migrate.check(url_of(made.path)) == []


@pytest.fixture
def written_to(file: Path) -> Iterator[Path]:
    """A database in which a thread renames both jobs all the time, always both to the same."""
    stop = threading.Event()

    def write() -> None:
        with Database(parse_url(url_of(file))) as database:
            number = 0
            while not stop.is_set():
                number += 1
                with database.write() as session:
                    rename = text("UPDATE jobs SET note = :n, error = :n")
                    session.execute(rename, {"n": str(number)})

    thread = threading.Thread(target=write)
    thread.start()
    yield file
    stop.set()
    thread.join()


def test_a_backup_beside_a_writer_is_of_one_moment(written_to: Path, tmp_path: Path) -> None:
    for number in range(5):
        made = back_up(url_of(written_to), tmp_path / f"{number}.db").path
        with closing(sqlite3.connect(made)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            ((note, error),) = connection.execute("SELECT note, error FROM jobs")
            assert note == error


def test_a_backup_overwrites_nothing(file: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.write_text("mine", "utf-8")
    with pytest.raises(ConflictError, match=r"there\.db exists.*name another file"):
        back_up(url_of(file), there)
    assert there.read_text("utf-8") == "mine"
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConflictError, match=r"link\.db exists"):
        back_up(url_of(file), tmp_path / "link.db")


def test_what_cannot_be_backed_up_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no folder .*missing for the backup"):
        back_up(url_of(file), tmp_path / "missing" / "copy.db")
    with pytest.raises(NotFoundError, match=r"no database .*other\.db to back up"):
        back_up(url_of(tmp_path / "other.db"), tmp_path / "copy.db")
    for call in (back_up, restore):
        with pytest.raises(SpecError, match=r"p:\*\*\*@h.*pg_dump.*pg_restore.*operations\.md"):
            call("postgresql://p:secret-word@h/d", tmp_path / "copy.db")
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).close()
    empty.touch()
    with pytest.raises(DatabaseError, match=r"empty\.db is no database of kdnas"):
        back_up(url_of(empty), tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_full_disk_leaves_no_half_of_a_backup(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    target.mkdir()
    with (
        small_disk(file.stat().st_size // 2),
        pytest.raises(DatabaseError, match=r"could not be copied to .*backups.*check the space"),
    ):
        back_up(url_of(file), target / "copy.db")
    assert list(target.iterdir()) == []
    back_up(url_of(file), target / "copy.db")


def test_a_backup_that_is_killed_leaves_no_file_of_that_name(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    command = [sys.executable, "-c", KILLED, "back_up", url_of(file), str(copy)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not copy.exists()
    assert num_jobs(back_up(url_of(file), copy).path) == 1


def test_a_restore_puts_back_what_was_and_keeps_what_is(file: Path, backup: Path) -> None:
    done = restore(url_of(file), backup)
    assert done.revision == migrate.head()
    assert num_jobs(file) == 1
    assert done.kept is not None
    assert num_jobs(done.kept) == 2
    assert sorted(path.name for path in file.parent.iterdir()) == ["kdnas.db", done.kept.name]
    assert num_jobs(backup) == 1


def test_a_restore_on_a_disk_without_hard_links(
    file: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_here(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none_here)
    done = restore(url_of(file), backup)
    assert done.kept is not None
    assert (num_jobs(file), num_jobs(done.kept)) == (1, 2)
    assert sorted(path.name for path in file.parent.iterdir()) == ["kdnas.db", done.kept.name]


def test_a_restore_where_nothing_was(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new" / "kdnas.db"
    assert restore(url_of(new), backup).kept is None
    assert num_jobs(new) == 1


def test_a_database_in_use_is_not_replaced(file: Path, backup: Path) -> None:
    with Database(parse_url(url_of(file))) as database:
        make_job(database)
        with pytest.raises(ConflictError, match=r"in use; stop the service"):
            restore(url_of(file), backup)
        make_job(database)
    assert num_jobs(file) == 4
    assert [path.name for path in file.parent.iterdir()] == ["kdnas.db"]


def test_a_bad_backup_replaces_nothing(file: Path, backup: Path, tmp_path: Path) -> None:
    before = everything(file.parent)
    newer = Path(shutil.copy(backup, tmp_path / "newer.db"))
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    damaged = Path(shutil.copy(backup, tmp_path / "damaged.db"))
    with damaged.open("r+b") as stream:
        stream.seek(damaged.stat().st_size // 3)
        stream.write(os.urandom(40_000))
    text_file = tmp_path / "text.db"
    text_file.write_text("no database at all, but long enough to be one" * 100, "utf-8")
    cut = tmp_path / "cut.db"
    cut.write_bytes(backup.read_bytes()[:20_000])
    for bad, sentence in (
        (newer, r"at revision 9999, which kdnas .* install a newer kdnas"),
        (damaged, r"damaged"),
        (text_file, r"not an SQLite database"),
        (cut, r"damaged"),
    ):
        with pytest.raises(DatabaseError, match=sentence):
            restore(url_of(file), bad)
    with pytest.raises(NotFoundError, match="no backup"):
        restore(url_of(file), tmp_path / "missing.db")
    with pytest.raises(SpecError, match="is the database itself"):
        restore(url_of(file), file)
    assert everything(file.parent) == before


def test_a_full_disk_restores_nothing(file: Path, backup: Path) -> None:
    before = everything(file.parent)
    with (
        small_disk(backup.stat().st_size // 2),
        pytest.raises(DatabaseError, match="nothing was changed"),
    ):
        restore(url_of(file), backup)
    assert everything(file.parent) == before


def test_a_restore_that_is_killed_changes_nothing(file: Path, backup: Path) -> None:
    command = [sys.executable, "-c", KILLED, "restore", url_of(file), str(backup)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert num_jobs(file) == 2
    assert restore(url_of(file), backup).kept is not None


def test_a_damaged_database_is_replaced_and_kept_with_its_log(file: Path, backup: Path) -> None:
    file.write_bytes(b"\0" * 5000)
    log = file.with_name("kdnas.db-wal")
    log.write_bytes(b"of the damaged one")
    done = restore(url_of(file), backup)
    assert num_jobs(file) == 1
    assert done.kept is not None
    assert done.kept.read_bytes() == b"\0" * 5000
    assert not log.exists()

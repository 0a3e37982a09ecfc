"""Connections: pragmas, transactions, and errors in words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text, update

from kdnas.db.engine import Database, Session, make_engine, parse_url, shown
from kdnas.db.migrate import open_database
from kdnas.db.models import Job, Search
from kdnas.db.repository import jobs, searches
from kdnas.errors import DatabaseError, TransactionEndedError
from kdnas.settings import Settings


def settings_for(url: str, tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path), "KDNAS_DATABASE_URL": url})


def test_sqlite_is_set_up_as_promised(tmp_path: Path) -> None:
    with open_database(settings_for("", tmp_path)) as database, database.write() as session:
        answers = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert answers == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


def test_who_comes_alone_has_the_same_connection_again(database: Database) -> None:
    """Whoever else once came: connections that are not needed stay as small as they are."""
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(database.read()).connection()
    used = set()
    for _ in range(6):
        with database.read() as session:
            used.add(id(session.connection().connection.dbapi_connection))
    assert len(used) == 1


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(DatabaseError), database.read() as session:
        searches.create_search(session, {})
    with database.write() as session:
        searches.create_search(session, {})


def test_an_error_undoes_the_whole_transaction(database: Database) -> None:
    def write_and_fail() -> None:
        with database.write() as session:
            searches.create_search(session, {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    with database.read() as session:
        assert jobs.newest_jobs(session, Search) == []


@pytest.mark.databases("postgresql")
def test_a_server_and_its_clients_notice_soon_that_the_other_is_gone(database: Database) -> None:
    with database.read() as session:
        info = session.connection().connection.dbapi_connection.info  # type: ignore[union-attr]
        told = info.get_parameters()
        assert (told["keepalives_idle"], told["tcp_user_timeout"]) == ("15", "30000")
        assert session.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == "2min"
    own = make_engine(database.url.update_query_dict({"tcp_user_timeout": "9000"}))
    with own.connect() as connection:
        info = connection.connection.dbapi_connection.info  # type: ignore[union-attr]
        assert info.get_parameters()["tcp_user_timeout"] == "9000"
    own.dispose()


def stands_still(session: Session) -> None:
    session.execute(text("SELECT 1"))
    time.sleep(2)
    session.execute(text("SELECT 1"))


def stand_still(database: Database) -> None:
    with database.write() as session:
        stands_still(session)


@pytest.mark.databases("postgresql")
def test_who_stands_still_in_a_transaction_is_ended_and_does_it_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.db.engine.IDLE_SECONDS", 1)
    tries = []

    def work(session: Session) -> None:
        tries.append(searches.create_search(session, {}, name="once"))
        session.flush()
        if len(tries) == 1:
            time.sleep(2)

    with Database(database.url) as impatient:  # with connections of its own
        impatient.transact(work)
        assert len(tries) > 1
        with pytest.raises(TransactionEndedError, match="idle-in-transaction timeout, so that"):
            stand_still(impatient)
        assert not impatient.note(stands_still)
    with database.read() as session:
        assert session.query(Job).count() == 1


@pytest.mark.databases("postgresql")
def test_of_two_that_wait_for_each_other_one_does_it_again(database: Database) -> None:
    with database.write() as session:
        ids = [searches.create_search(session, {}, name=name).id for name in ("one", "two")]
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    def change(first: str, second: str, note: str) -> None:
        def work(session: Session) -> None:
            tries.append(note)
            session.execute(update(Job).where(Job.id == first).values(note=note))
            if len(tries) <= 2:
                both_hold_one.wait(30)
            session.execute(update(Job).where(Job.id == second).values(note=note))

        database.transact(work)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(change, *ids, "up"), pool.submit(change, *ids[::-1], "down")]:
            done.result(60)
    assert len(tries) > 2
    with database.read() as session:
        (note,) = {job.note for job in session.query(Job)}
    assert note in {"up", "down"}  # each was done whole


def test_readers_and_a_writer_do_not_wait_for_each_other(database: Database) -> None:
    with database.write() as writer:
        searches.create_search(writer, {}, name="unseen")
        with database.read() as reader:
            assert jobs.newest_jobs(reader, Search) == []
    with database.read() as reader:
        assert len(jobs.newest_jobs(reader, Search)) == 1
        with database.write() as writer:
            searches.create_search(writer, {}, name="later")
        assert len(jobs.newest_jobs(reader, Search)) == 1  # one state all along


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("no url", "is not a database URL"),
        ("mysql://user:secret@host/db", "'mysql' is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_wrong_urls_are_refused(url: str, said: str) -> None:
    with pytest.raises(DatabaseError, match=said) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_no_password_is_ever_shown(tmp_path: Path) -> None:
    url = "postgresql://user:hunter2@127.0.0.1:1/kdnas?password=hunter2"
    assert "hunter2" not in shown(parse_url(url))
    with pytest.raises(DatabaseError, match=r"check that the server runs") as caught:
        open_database(settings_for(url, tmp_path))
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a database\n" * 100)
    with pytest.raises(DatabaseError, match="not an SQLite database"):
        open_database(settings_for(f"sqlite:///{path}", tmp_path))
    assert path.read_text().startswith("this is not")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match="cannot make the folder"):
        open_database(settings_for(f"sqlite:///{tmp_path}/file/sub/kdnas.db", tmp_path))


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "kdnas.db").mkdir()
    with pytest.raises(DatabaseError, match="not writable"):
        open_database(settings_for("", tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(DatabaseError, match="not writable"):
            open_database(settings_for("", tmp_path))
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_leaves_the_database_whole(tmp_path: Path) -> None:
    with open_database(settings_for("", tmp_path)) as database:
        with database.write() as session:
            pages = session.scalar(text("PRAGMA page_count"))
            session.execute(text(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(DatabaseError, match="disk is full"), database.write() as session:
            searches.create_search(session, {"text": "x" * 1_000_000})
    with sqlite3.connect(tmp_path / "kdnas.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM searches").fetchone() == (0,)
    connection.close()

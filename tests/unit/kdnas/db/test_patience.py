"""Waiting for a database that does not answer, with real ones that are stopped and locked."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kdnas.db import engine
from kdnas.db.engine import Database, parse_url
from kdnas.db.migrate import upgrade
from kdnas.db.models import Search
from kdnas.db.repository import events, jobs, searches
from kdnas.errors import DatabaseAwayError, DatabaseError
from kdnas.testing.postgres import OwnServer, own_server


class Patient:
    """A database that is waited for, what was said of that, and how often Ctrl-C was pressed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.said: list[str] = []
        self.num_asked = 0

    @contextmanager
    def waiting(self, seconds: float = 60.0) -> Iterator[None]:
        with self.database.patient(seconds, self.said.append, lambda: self.num_asked):
            yield

    def make(self, name: str) -> str:
        return self.database.transact(
            lambda session: searches.create_search(session, {}, name=name).id
        )

    @property
    def names(self) -> list[str | None]:
        return self.database.ask(
            lambda session: [job.name for job in jobs.newest_jobs(session, Search)]
        )

    def check_said(self) -> None:
        first, second = self.said
        assert first.startswith("the database is out of reach (database postgresql")
        assert "; waiting, since " in first
        assert first.endswith("; Ctrl-C ends")
        assert "the database is back after" in second


@contextmanager
def beside(act: Callable[[], object], after_seconds: float) -> Iterator[None]:
    """Do something after a while in a thread."""
    timer = threading.Timer(after_seconds, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server() as made:
        upgrade(made.url)
        yield made


@pytest.fixture
def patient(server: OwnServer) -> Iterator[Patient]:
    server.start()
    with Database(parse_url(server.url)) as database:
        yield Patient(database)


@pytest.mark.postgres
def test_work_waits_for_a_server_that_is_started_again(patient: Patient, server: OwnServer) -> None:
    with patient.waiting():
        patient.make("before")  # its connection is kept, and cut off
        server.stop()
        with beside(server.start, 1.0):
            patient.make("after")
        assert patient.names[:2] == ["after", "before"]
    patient.check_said()


@pytest.mark.postgres
def test_who_is_not_patient_is_refused_at_once(patient: Patient, server: OwnServer) -> None:
    server.stop()
    with pytest.raises(DatabaseAwayError, match="check that the server runs"):
        patient.make("never")
    assert patient.said == []


@pytest.mark.postgres
def test_a_transaction_that_is_cut_off_is_done_again_as_a_whole(
    patient: Patient, server: OwnServer
) -> None:
    tries: list[str] = []
    starting: list[threading.Timer] = []

    def work(session: Any) -> str:
        made = searches.create_search(session, {}, name="cut-off").id
        tries.append(made)
        if len(tries) == 1:
            server.stop()
            starting.append(threading.Timer(0.5, server.start))
            starting[0].start()
        return searches.create_search(session, {}, name="with-it").id

    with patient.waiting():
        patient.database.transact(work)
        starting[0].join()  # the server answers before who has started it knows
        assert sorted(patient.names[:2]) == ["cut-off", "with-it"]
        found = patient.database.ask(lambda session: jobs.get_job(session, "cut-off").id)
    assert len(tries) == 2
    assert found == tries[-1]
    patient.check_said()


@pytest.mark.postgres
def test_what_an_outage_has_cut_off_is_no_outage_of_its_own(
    patient: Patient, server: OwnServer
) -> None:
    tries: list[str] = []

    def work(session: Any) -> str:
        made = searches.create_search(session, {}, name="overtaken").id
        tries.append(made)
        if len(tries) == 1:
            server.stop()
            with beside(server.start, 0.5):
                patient.make("meanwhile")  # waits, and has its answer
        return searches.create_search(session, {}, name="afterwards").id

    with patient.waiting():
        patient.database.transact(work)
        assert sorted(patient.names[:3]) == ["afterwards", "meanwhile", "overtaken"]
    assert len(tries) == 2
    patient.check_said()


def break_questions(patient: Patient, monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Let the connection break so often while it is asked what became of a transaction."""
    dialect = patient.database._engine.dialect
    execute, broken = dialect.do_execute, [0]

    def breaks(cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if "txid_status" in statement and broken[0] < times:
            broken[0] += 1
            cursor.connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        execute(cursor, statement, parameters, context)

    monkeypatch.setattr(dialect, "do_execute", breaks)


@pytest.mark.postgres
@pytest.mark.parametrize("asked_in_vain", [0, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_what_became_of_a_commit_without_an_answer_is_asked(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, committed: bool, asked_in_vain: int
) -> None:
    """The connection breaks after the server has committed, or before it was asked to."""
    break_questions(patient, monkeypatch, asked_in_vain)
    dialect = patient.database._engine.dialect
    commit = dialect.do_commit
    broken: list[int] = []
    name = f"committed-{committed}-{asked_in_vain}"

    def breaks(connection: Any) -> None:
        if broken:
            commit(connection)
            return
        broken.append(1)
        if committed:
            commit(connection)
        connection.dbapi_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    tries: list[str] = []

    def work(session: Any) -> str:
        tries.append(searches.create_search(session, {}, name=name).id)
        return tries[-1]

    with patient.waiting():
        monkeypatch.setattr(dialect, "do_commit", breaks)
        made = patient.database.transact(work)
        found = patient.database.ask(lambda session: jobs.get_job(session, name).id)
        told = patient.database.ask(lambda session: events.events_since(session, job_id=made))
    assert found == made
    assert len(tries) == (1 if committed else 2)
    assert [event.type for event in told] == ["search_created"]
    if asked_in_vain:
        assert len(patient.said) > 2
        patient.said = patient.said[-2:]
    patient.check_said()


@pytest.mark.postgres
def test_work_of_which_nobody_can_say_whether_it_was_done_is_not_done_again(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_questions(patient, monkeypatch, float("inf"))
    monkeypatch.setattr(engine, "IDLE_SECONDS", 1)
    dialect = patient.database._engine.dialect
    commit, tries = dialect.do_commit, []

    def work(session: Any) -> None:
        tries.append(searches.create_search(session, {}, name="perhaps").id)

    def breaks(connection: Any) -> None:
        commit(connection)
        if len(tries) == 1:
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    with patient.waiting():
        monkeypatch.setattr(dialect, "do_commit", breaks)
        with pytest.raises(DatabaseError, match=r"may have been done, and .* does not say") as told:
            patient.database.transact(work)
        assert not isinstance(told.value, DatabaseAwayError)
        assert len(tries) == 1
        monkeypatch.undo()
        assert "perhaps" in patient.names


@pytest.mark.postgres
def test_in_the_end_it_gives_up_with_a_sentence_and_then_at_once(
    patient: Patient, server: OwnServer
) -> None:
    server.stop()
    with patient.waiting(0.5):
        began = time.monotonic()
        with pytest.raises(DatabaseAwayError, match=r"for 0\.5 s by now \(KDNAS_DATABASE_PATIEN"):
            patient.make("never")
        assert time.monotonic() - began >= 0.5
        for _ in range(2):  # such as the release of a lease: nothing is waited for twice
            with pytest.raises(DatabaseAwayError, match=r"0\.5 s by now .*; check that the server"):
                patient.make("never")
    assert len(patient.said) == 1


@pytest.mark.postgres
def test_who_asks_to_stop_while_it_waits_ends_that(patient: Patient, server: OwnServer) -> None:
    patient.num_asked = 1  # before: students at work were coming to their end

    def press() -> None:
        patient.num_asked = 2

    server.stop()
    refused = pytest.raises(DatabaseAwayError, match="check that the server runs")
    with patient.waiting(), beside(press, 0.5), refused:
        patient.make("never")


@pytest.mark.postgres
def test_what_is_said_anew_soon_is_left_out_meanwhile(patient: Patient, server: OwnServer) -> None:
    def note(name: str) -> bool:
        return patient.database.note(lambda session: searches.create_search(session, {}, name=name))

    with patient.waiting():
        assert note("noted")
        server.stop()
        assert not note("left-out")
        assert patient.database.is_away
        assert not note("left-out-too")
        server.start()
        assert "left-out" not in patient.names  # which tells that it is back
        assert not patient.database.is_away
        assert note("noted-again")
    patient.check_said()


@pytest.fixture
def locked(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An SQLite database that another program keeps locked, and what unlocks it."""
    monkeypatch.setattr("kdnas.db.engine.BUSY_TIMEOUT_SECONDS", 0.2)
    path = tmp_path / "kdnas.db"
    path.write_bytes(sqlite_template.read_bytes())
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with Database(parse_url(f"sqlite:///{path}")) as database:
        yield Patient(database), lambda: other.execute("ROLLBACK")
    other.close()


def test_a_file_that_is_locked_for_long_is_waited_for(locked: Any) -> None:
    patient, unlock = locked
    with patient.waiting():
        with beside(unlock, 1.5):
            patient.make("late")
        assert patient.names == ["late"]
    first, second = patient.said
    assert "kept the file locked); waiting, since" in first
    assert "is back" in second


def test_reading_does_not_say_that_a_locked_file_is_back(locked: Any) -> None:
    patient, unlock = locked
    with patient.waiting(0.5):
        with pytest.raises(DatabaseAwayError, match=r"kept the file locked, for 0\.5 s by now"):
            patient.make("never")
        assert patient.names == []
        assert len(patient.said) == 1
        unlock()
        patient.make("late")
    assert len(patient.said) == 2

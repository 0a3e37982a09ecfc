"""Connections to SQLite and PostgreSQL, and one transaction at a time on them.

On SQLite writers say ``BEGIN IMMEDIATE`` and wait for each other; a transaction that reads first
and writes later would fail at once with *database is locked*. Readers are read-only and deferred,
so in WAL mode they neither wait nor hold anybody up.

Work that takes long is patient (:meth:`Database.patient`): its transactions wait for a database
that does not answer, and are done again where it went away before they were committed. Where the
answer to a commit got lost, PostgreSQL is asked what became of it: nothing is written twice.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.orm import Session as Session  # for annotations elsewhere
from sqlalchemy.pool import ConnectionPoolEntry

from kdnas.db.patience import SHORTEST_SECONDS, Patience
from kdnas.errors import DatabaseAwayError, DatabaseError, TransactionEndedError

BUSY_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 10
_NOTICED_SOON: Final = {
    **{"keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"},
    "tcp_user_timeout": "30000",  # milliseconds
}
"""Of libpq: a server whose machine or network is gone is noticed within half a minute. A URL may
say otherwise. What the system has of its own is hours."""
IDLE_SECONDS = 120
"""So long a transaction may stand still, holding what others wait for, until the server ends it:
its process was stopped, or is gone with its machine. None of ours computes for nearly as long."""
MOST_CONNECTIONS = 15
"""Of one process, opened as they are needed and kept: to open one takes as long as ten reads."""
CACHE_KIB = 512
"""Of a connection to SQLite, a quarter of what it would take: the system caches the file anyway."""
CACHED_STATEMENTS = 32
"""Of a connection to SQLite, a quarter of what it would keep: one takes 17 KiB, and 0.1 ms anew."""

ACTOR: Final = "by"
"""Under this key the ``info`` of a session says who asks for what it does."""
_BEGAN: Final = "began"
"""Under this one, when its transaction began (monotonic clock)."""

_MEANINGS = (
    ("file is not a database", "the file is not an SQLite database", "name another file"),
    ("disk is full", "the disk is full", "free some space and start again"),
    ("no space left", "the disk is full", "free some space and start again"),
    (
        "disk i/o error",
        "the disk cannot be read or written",
        "check its space and its health",
    ),
    (
        "readonly database",
        "the file or its folder is not writable",
        "check its permissions",
    ),
    (
        "unable to open database",
        "it or its folder is not writable, or it is no file",
        "check both",
    ),
    (
        "database disk image is malformed",
        "the file is damaged",
        "restore it from a backup",
    ),
    (
        "database is locked",
        "another program has kept the file locked",
        "stop it and start again",
    ),
)
"""What a driver says → what it means → what to do about it."""
_AWAY = ("08", "57P01", "57P02", "57P03", "53300")
"""SQLSTATE of PostgreSQL that stops, starts, or has no connection left; without one it was not
reached at all."""
_AGAIN = ("25P03", "40001", "40P01")
"""Of a transaction that it has ended so that others can go on: one that stood still, or that waited
for another which waited for it."""
MOST_ENDED: Final = 5
"""So often a transaction that was ended like this is tried."""

Answer = TypeVar("Answer")


def parse_url(text: str) -> URL:
    """Read a database URL.

    Raises:
        DatabaseError: it is no URL, of another kind, or names no file; never shows a password.
    """
    advice = "use sqlite:////folder/kdnas.db or postgresql://user:password@host/database"
    try:
        url = make_url(text)
    except ArgumentError:
        raise DatabaseError(f"KDNAS_DATABASE_URL is not a database URL; {advice}") from None
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise DatabaseError(f"database kind {url.drivername!r} is not supported; {advice}")
    if url.get_backend_name() == "sqlite" and (
        not url.database or ":memory:" in url.database or url.database.startswith("file:")
    ):
        raise DatabaseError(f"database {shown(url)} names no file of its own; {advice}")
    return url


def shown(url: URL) -> str:
    """The URL for a message: without password and options."""
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn a driver's error into a DatabaseError: where, what, and what to do about it.

    A broken constraint is a mistake of this program and stays what it is.
    """
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, sqlite3.Error) as error:  # the driver's own while a connection is set up
        raise worded(error, url) from error


def worded(error: DBAPIError | sqlite3.Error, url: URL) -> DatabaseError:
    """Say what a driver's error means: where, what, and what to do about it."""
    reason = str(getattr(error, "orig", error))
    line = (reason.strip().splitlines() or ["no reason given"])[0]
    if url.password:
        line = line.replace(url.password, "***")
    known = (meaning for sign, *meaning in _MEANINGS if sign in reason.lower())
    what, advice = next(known, (line, _advice(reason, url)))
    what = f"database {shown(url)}: {what}"
    if getattr(getattr(error, "orig", None), "sqlstate", None) in _AGAIN:
        return TransactionEndedError(f"{what}, so that others could go on; do it again")
    if _is_away(error):
        return DatabaseAwayError(what, advice)
    return DatabaseError(f"{what}; {advice}")


def _is_away(error: DBAPIError | sqlite3.Error) -> bool:
    """Whether the database may well answer when it is asked again."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.OperationalError):
        return "database is locked" in str(cause)
    if not isinstance(cause, psycopg.OperationalError):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(_AWAY)


def _advice(reason: str, url: URL) -> str:
    if "no such table" in reason or ("does not exist" in reason and "relation" in reason):
        return "if it is not migrated, run `kdnas db upgrade`"
    if url.get_backend_name() == "postgresql":
        return "check that the server runs and that KDNAS_DATABASE_URL is right"
    return "check the file"


def make_engine(url: URL, *, foreign_keys: bool = True) -> Engine:
    """Make an engine with the settings of its dialect; connects to nothing yet.

    Args:
        url: from :func:`parse_url`.
        foreign_keys: False for migrations, which rebuild tables on SQLite.
    """
    # The connection that was used last is used next: each keeps pages and prepared statements of
    # its own, so that few of them grow large, and have what is wanted.
    pool: dict[str, Any] = {
        "pool_size": MOST_CONNECTIONS,
        "max_overflow": 0,
        "pool_use_lifo": True,
    }
    if url.get_backend_name() == "postgresql":
        query = {"connect_timeout": str(CONNECT_TIMEOUT_SECONDS), **_NOTICED_SOON, **url.query}
        engine = create_engine(
            url.set(drivername="postgresql+psycopg", query=query),
            pool_pre_ping=True,
            **pool,
        )
        event.listen(engine, "connect", _set_up_postgresql)
        return engine
    options = {"timeout": BUSY_TIMEOUT_SECONDS, "cached_statements": CACHED_STATEMENTS}
    engine = create_engine(url, connect_args=options, **pool)
    event.listen(engine, "connect", partial(_set_up_sqlite, url, foreign_keys))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_postgresql(connection: psycopg.Connection, _: ConnectionPoolEntry) -> None:
    """Have the server notice soon that this process is gone, and let go of what it held.

    By statements: options of the connection are refused by poolers in between.
    """
    connection.execute(
        f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000:d};"
        "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; "
        "SET tcp_keepalives_count = 3"
    )
    connection.commit()


def _set_up_sqlite(
    url: URL, foreign_keys: bool, connection: sqlite3.Connection, _: ConnectionPoolEntry
) -> None:
    """Prepare a new connection, and verify what its pragmas answered."""
    connection.isolation_level = None  # the driver begins nothing of its own accord
    wanted = {
        "busy_timeout": int(BUSY_TIMEOUT_SECONDS * 1000),
        "synchronous": 1,
        "foreign_keys": int(foreign_keys),
        "cache_size": -CACHE_KIB,
    }
    for name, value in wanted.items():
        connection.execute(f"PRAGMA {name} = {value}")
        (answer,) = connection.execute(f"PRAGMA {name}").fetchone()
        if answer != value:
            raise DatabaseError(
                f"database {shown(url)}: SQLite answered {name} = {answer} instead of "
                f"{value}; use another build of SQLite"
            )
    mode = _write_ahead(connection)
    if mode != "wal":
        raise DatabaseError(
            f"database {shown(url)}: the folder's file system has no write-ahead log "
            f"(journal mode {mode!r}); use a local disk"
        )


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Switch a new file to write-ahead logging; returns the mode that it has then.

    The switch needs the file alone, and SQLite does not always wait for that by itself.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("kdnas_write", False)
    connection.exec_driver_sql(f"PRAGMA query_only = {0 if writes else 1}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database(AbstractContextManager["Database"]):
    """A database, open and migrated; each use is one transaction.

    Safe to share between threads; open one in each process.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self._engine = make_engine(url)
        self._writer = self._engine.execution_options(kdnas_write=True)
        self._reader = self._engine
        self._patience: Patience | None = None
        if self.dialect == "postgresql":
            self._reader = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @contextmanager
    def patient(
        self, seconds: float, say: Callable[[str], None], num_asked: Callable[[], int]
    ) -> Iterator[None]:
        """Wait for the database, where it does not answer, for the time of a ``with`` block.

        Args:
            seconds: of one outage.
            say: tells the person who runs this process, at its begin and at its end.
            num_asked: how often somebody has asked this process to stop; who does so while it waits
                ends the wait.
        """
        before, self._patience = self._patience, Patience(seconds, say, num_asked)
        try:
            yield
        finally:
            self._patience = before

    @property
    def is_away(self) -> bool:
        """Whether this process waits for the database, so that what can be left out should be."""
        return self._patience is not None and self._patience.has_outage

    def transact(self, work: Callable[[Session], Answer], by: str | None = None) -> Answer:
        """Do a piece of work as one transaction, once.

        Args:
            work: done again if the database ends it so that others can go on, or if it goes away
                before it is committed, where this process is patient.
            by: see :meth:`write`.

        Raises:
            DatabaseError: the database is out of reach, full, or read-only.
        """
        return self._until_done(partial(self.write, by), work)

    def ask(self, work: Callable[[Session], Answer]) -> Answer:
        """Read something; again if the database goes away meanwhile, as with :meth:`transact`.

        Raises:
            DatabaseError: the database is out of reach.
        """
        return self._until_done(self.read, work)

    def note(self, work: Callable[[Session], object]) -> bool:
        """Write down what will be written anew soon: left out if the database does not answer.

        So work that is watched is never held up by that.

        Returns:
            Whether it was written; if not, it may have been all the same.

        Raises:
            DatabaseError: the database is full or read-only, or this process is not patient.
        """
        if self.is_away:
            return False
        try:
            with self._begun(self._writer, waits=False) as session:
                work(session)
                self._commit(session, waits=False)
        except DatabaseAwayError:
            if self._patience is None:
                raise
            return False
        except TransactionEndedError:
            return False
        return True

    @contextmanager
    def write(self, by: str | None = None) -> Iterator[Session]:
        """A session that is committed at the end, or rolled back if anything is raised.

        Args:
            by: the user who asks for what it does, or ``cli``; its events say so, and jobs that it
                adds are his. None for what no user asks for, and for one whom nobody knows.

        Raises:
            DatabaseError: the database is out of reach, full, or read-only.
        """
        with self._begun(self._writer, by=by) as session:
            yield session
            self._commit(session)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read-only session on one state of the database.

        Raises:
            DatabaseError: the database is out of reach.
        """
        with self._begun(self._reader) as session:
            yield session

    def _until_done(
        self,
        transaction: Callable[[], AbstractContextManager[Session]],
        work: Callable[[Session], Answer],
    ) -> Answer:
        ended = 0
        while True:
            try:
                with transaction() as session:
                    return work(session)
            except TransactionEndedError:
                ended += 1
                if ended == MOST_ENDED:
                    raise
                time.sleep(ended * random.uniform(0.0, SHORTEST_SECONDS))  # not both at once again
            except DatabaseAwayError as error:
                self._wait(error)

    @contextmanager
    def _begun(
        self, engine: Engine, *, waits: bool = True, by: str | None = None
    ) -> Iterator[Session]:
        """A session in a transaction; waits until the database lets it begin one."""
        of_writes = engine is self._writer
        of_writes_alone = of_writes and self.dialect == "sqlite"
        while True:
            began = time.monotonic()
            session = Session(engine, expire_on_commit=False, info={ACTOR: by, _BEGAN: began})
            try:
                with translated(self.url):
                    session.connection()
            except DatabaseAwayError as error:
                session.close()
                if self._patience is not None:
                    self._patience.note_failure(error, of_writes_alone, began)
                if not waits:
                    raise
                self._wait(error)
            else:
                break
        with session:
            if self._patience is not None:
                self._patience.note_answer(of_writes)
            try:
                with translated(self.url):
                    yield session
            except DatabaseAwayError as error:
                if self._patience is not None:
                    self._patience.note_failure(error, of_writes_alone, began)
                raise

    def _wait(self, error: DatabaseAwayError) -> None:
        """Wait before the next try, or raise the error where there is to be none."""
        if self._patience is None:
            raise error
        if not self._patience.wait():
            raise self._patience.over(error) from error

    def _commit(self, session: Session, *, waits: bool = True) -> None:
        """Commit; where the answer is lost, whether it was done is asked of the server."""
        number = None
        if self._patience is not None and self.dialect == "postgresql":
            session.flush()
            number = session.scalar(select(func.txid_current_if_assigned()))
        try:
            with translated(self.url):
                session.commit()
        except DatabaseAwayError as error:
            if self._patience is None or number is None or not waits:
                raise
            self._patience.note_failure(error, False, session.info[_BEGAN])
            if not self._was_committed(number):
                raise

    def _was_committed(self, number: int) -> bool:
        """Whether a transaction of PostgreSQL was committed whose connection is lost.

        Raises:
            DatabaseError: its process on the server is at it still, when it must have noticed; or
                the server does not say so for as long as this process waits. It is not told as a
                database that is away: nobody may do the work again who does not know.
        """
        until = time.monotonic() + 2 * IDLE_SECONDS
        what = f"database {shown(self.url)}: transaction {number}, whose connection was lost,"
        while True:
            try:
                with self._begun(self._reader) as session:
                    found = session.scalar(select(func.txid_status(number)))
            except DatabaseAwayError as error:  # gone again meanwhile
                waits = self._patience is not None and self._patience.wait()
                if not waits or time.monotonic() > until:
                    raise DatabaseError(
                        f"{what} may have been done, and the database does not say "
                        f"({error.reason}); resume, which looks at what is there"
                    ) from error
                continue
            if found != "in progress":
                return bool(found == "committed")
            if time.monotonic() > until:
                raise DatabaseError(
                    f"{what} is neither done nor given up; look at pg_stat_activity, and resume"
                )
            time.sleep(SHORTEST_SECONDS)  # its own process has not noticed yet

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engine.dispose()

    def __exit__(self, *_: Any) -> None:
        self.close()


def prepare_folder(url: URL) -> None:
    """Make the folder of an SQLite file; DatabaseError if that cannot be done."""
    if url.get_backend_name() != "sqlite" or url.database is None:
        return
    folder = Path(url.database).absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"cannot make the folder {folder} for the database: {error.strerror}; choose another "
            "with KDNAS_HOME or KDNAS_DATABASE_URL"
        ) from None

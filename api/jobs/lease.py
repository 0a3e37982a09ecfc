"""Threads beside the work: one keeps its lease, one looks whether it is still wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kdnas.db.engine import Database
from kdnas.db.queue import leases
from kdnas.errors import ConflictError, DatabaseError

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
WATCH_SECONDS = 1.0


@contextmanager
def held_lease(
    database: Database, table: leases.LeasedTable, row_id: str, owner: leases.LeaseOwner
) -> Iterator[threading.Event]:
    """Hold a row's lease for the time of a ``with`` block.

    Yields:
        An event that is set if the lease is lost to somebody else: stop working then.

    Raises:
        ConflictError: somebody else holds it.
    """
    with database.write() as session:
        leases.acquire(session, table, row_id, owner, LEASE_SECONDS)

    def is_lost() -> bool:
        try:
            with database.write() as session:
                leases.renew(session, table, row_id, owner, LEASE_SECONDS)
        except ConflictError:
            return True
        return False

    try:
        with watched(is_lost, f"lease-{row_id}", RENEW_SECONDS) as lost:
            yield lost
    finally:
        if not lost.is_set():
            with database.write() as session:
                leases.release(session, table, row_id, owner)


@contextmanager
def watched(
    is_so: Callable[[], bool], name: str, every_seconds: float | None = None
) -> Iterator[threading.Event]:
    """Ask something again and again for the time of a ``with`` block.

    Args:
        is_so: asks the database; called from a thread. Where that is out of reach it is asked again
            at the next turn: a lease outlasts three failures.
        name: of the thread.
        every_seconds: how long a turn is; None is ``WATCH_SECONDS``.

    Yields:
        An event that is set once the answer was yes.
    """
    done, found = threading.Event(), threading.Event()
    seconds = WATCH_SECONDS if every_seconds is None else every_seconds

    def watch() -> None:
        while not (done.wait(seconds) or found.is_set()):
            with suppress(DatabaseError):
                if is_so():
                    found.set()

    watcher = threading.Thread(target=watch, name=name, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()

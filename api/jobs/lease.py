"""Threads beside the work: one keeps its lease, one looks whether it is still wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    done, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not done.wait(RENEW_SECONDS):
            try:
                with database.write() as session:
                    leases.renew(session, table, row_id, owner, LEASE_SECONDS)
            except ConflictError:
                lost.set()
                return
            except DatabaseError:
                continue  # tried again in a while; the lease outlasts three failures

    keeper = threading.Thread(target=keep, name=f"lease-{row_id}", daemon=True)
    keeper.start()
    try:
        yield lost
    finally:
        done.set()
        keeper.join()
        if not lost.is_set():
            with database.write() as session:
                leases.release(session, table, row_id, owner)


@contextmanager
def watched(is_so: Callable[[], bool], name: str) -> Iterator[threading.Event]:
    """Ask something every few seconds for the time of a ``with`` block.

    Args:
        is_so: asks the database; called from a thread.
        name: of the thread.

    Yields:
        An event that is set once the answer was yes.
    """
    done, found = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_SECONDS):
            try:
                if is_so():
                    found.set()
                    return
            except DatabaseError:
                continue  # asked again in a while

    watcher = threading.Thread(target=watch, name=name, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()

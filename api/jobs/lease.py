"""Threads beside the work: one keeps its lease, one looks whether it is still wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from kdnas.db.engine import Database
from kdnas.db.queue import leases
from kdnas.errors import ConflictError, DatabaseError, NotFoundError

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
WATCH_SECONDS = 1.0

Answer = TypeVar("Answer")


@contextmanager
def held_lease(
    database: Database, table: leases.LeasedTable, row_id: str, owner: leases.LeaseOwner
) -> Iterator[Callable[[], bool]]:
    """Hold a row's lease for the time of a ``with`` block.

    Yields:
        What says whether the lease is lost to somebody else: stop working then.

    Raises:
        ConflictError: somebody else holds it.
    """
    database.transact(lambda s: leases.acquire(s, table, row_id, owner, LEASE_SECONDS))

    def is_lost() -> bool:
        try:
            database.transact(lambda s: leases.renew(s, table, row_id, owner, LEASE_SECONDS))
        except (ConflictError, NotFoundError):  # somebody else's, or deleted
            return True
        return False

    with watched(is_lost, False, f"lease-{row_id}", RENEW_SECONDS) as lost:
        try:
            yield lost
        finally:
            if not lost():
                database.transact(lambda session: leases.release(session, table, row_id, owner))


@contextmanager
def watched(
    ask: Callable[[], Answer], first: Answer, name: str, every_seconds: float | None = None
) -> Iterator[Callable[[], Answer]]:
    """Ask something again and again for the time of a ``with`` block.

    Args:
        ask: asks the database; called from a thread. Where that is out of reach it is asked again
            at the next turn: a lease outlasts three failures.
        first: the answer until then.
        name: of the thread.
        every_seconds: how long a turn is; None is ``WATCH_SECONDS``.

    Yields:
        What gives the newest answer.
    """
    done, newest = threading.Event(), [first]
    seconds = WATCH_SECONDS if every_seconds is None else every_seconds

    def watch() -> None:
        while not done.wait(seconds):
            with suppress(DatabaseError):
                newest[0] = ask()

    watcher = threading.Thread(target=watch, name=name, daemon=True)
    watcher.start()
    try:
        yield lambda: newest[0]
    finally:
        done.set()
        watcher.join()

"""What the service needs to work: database, cluster, disk, coordinator."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from api.http.schemas import Check
from kdnas.db.engine import Database
from kdnas.db.queue import coordinators
from kdnas.db.repository.events import last_event_id
from kdnas.errors import DatabaseError
from kdnas.settings import Settings

LEAST_FREE_BYTES = 1024**3
CONNECT_SECONDS = 2.0
REMEMBERED_SECONDS = 1.0
"""Who is not known may ask as often as he likes, and gets what was found so long ago."""

Checks = dict[str, Check]

_OURS = {
    True: Check(ok=True, detail="looks after the queue"),
    False: Check(ok=False, detail="has stopped; the log says why, start the service again"),
}
_NOBODY = (
    "no coordinator looks after the queue, so nothing that waits is begun; start one with "
    "`kdnas coordinator`"
)


class Probe:
    """What was found last; lives on one event loop.

    Args:
        check: looks at everything, which may take seconds.
    """

    def __init__(self, check: Callable[[], Checks]) -> None:
        self._check = check
        self._found: Checks = {}
        self._at = -REMEMBERED_SECONDS
        self._looking = asyncio.Lock()

    async def look(self, *, afresh: bool) -> Checks:
        """Look, by one thread at a time; unless afresh, not so soon after the last time."""
        async with self._looking:
            if afresh or monotonic() - self._at >= REMEMBERED_SECONDS:
                self._found = await run_in_threadpool(self._check)
                self._at = monotonic()
            return self._found


def check_all(database: Database, settings: Settings, alive: bool | None) -> Checks:
    """Check everything.

    Args:
        database: of the service.
        settings: of the service.
        alive: whether the coordinator of this process looks after the queue; None if it has none,
            and other processes see to that.
    """
    return {
        "database": check_database(database),
        "ray": check_cluster(settings),
        "disk": check_disk(settings.home),
        "coordinator": _check_other_coordinators(database) if alive is None else _OURS[alive],
    }


def check_database(database: Database) -> Check:
    """Whether the database answers."""
    try:
        with database.read() as session:
            number = last_event_id(session)
    except DatabaseError as error:
        return Check(ok=False, detail=str(error))
    return Check(ok=True, detail=f"{database.dialect}, {number} events")


def check_cluster(settings: Settings) -> Check:
    """Whether something listens where the cluster should be."""
    address = settings.ray_address
    if address is None or address in {"auto", "local"}:
        return Check(ok=True, detail="none is named: the coordinator starts a local one")
    try:
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        host, port = parts.hostname, parts.port or 6379
        with socket.create_connection((host or "", port), timeout=CONNECT_SECONDS):
            return Check(ok=True, detail=f"{address} answers")
    except (OSError, ValueError) as error:
        return Check(
            ok=False, detail=f"{address} does not answer ({error}); check KDNAS_RAY_ADDRESS"
        )


def check_disk(folder: Path) -> Check:
    """Whether a folder can be written and has room; one that is not there yet, its parent."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Check(ok=False, detail=f"{existing} cannot be written; set KDNAS_HOME to another")
    free = shutil.disk_usage(existing).free
    told = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < LEAST_FREE_BYTES:
        return Check(ok=False, detail=f"{told}; free at least 1 GiB")
    return Check(ok=True, detail=told)


def _check_other_coordinators(database: Database) -> Check:
    try:
        with database.read() as session:
            number = coordinators.count_alive(session)
    except DatabaseError as error:
        return Check(ok=False, detail=str(error))
    found = f"{number} elsewhere look{'s' if number == 1 else ''} after the queue"
    return Check(ok=number > 0, detail=found if number else _NOBODY)

"""What the service needs to work: database, cluster, disk, coordinator."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

from api.http.schemas import Check
from kdnas.db.engine import Database
from kdnas.db.queue import coordinators
from kdnas.db.repository.events import last_event_id
from kdnas.errors import DatabaseError
from kdnas.settings import Settings

LEAST_FREE_BYTES = 1024**3
CONNECT_SECONDS = 2.0

_OURS = {
    True: Check(ok=True, detail="looks after the queue"),
    False: Check(ok=False, detail="has stopped; the log says why, start the service again"),
}
_NOBODY = (
    "no coordinator looks after the queue, so nothing that waits is begun; start one with "
    "`kdnas coordinator`"
)


def check_all(database: Database, settings: Settings, alive: bool | None) -> dict[str, Check]:
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

"""Who works on a row: a lease on the database's clock.

A lease whose owner is a dead process of the same host is taken over at once, any other when it
runs out. Two who try at the same time are kept apart by the row's lock (PostgreSQL) or by the one
writer (SQLite), so exactly one of them gets it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kdnas.db.base import LeaseColumns, locked
from kdnas.db.records import LeaseHolder, OwnerKind
from kdnas.errors import ConflictError, NotFoundError

LeasedTable = type[LeaseColumns]

_SLACK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LeaseOwner(LeaseHolder):
    """One who may hold leases; the token tells two owners in one process apart.

    Attributes:
        kind: ``cli`` or ``service``.
        host: host name, with the namespace of its process numbers where there are such.
        pid: process number on that host.
        process_started: when that process began (seconds after the host did, which no setting of
            its clock moves), since numbers are reused.
        token: random.
    """

    process_started: float
    token: str

    @classmethod
    def of_this_process(cls, kind: OwnerKind, token: str | None = None) -> LeaseOwner:
        """An owner that lives in this process: a new one, or the heir of one with a token."""
        pid = os.getpid()
        started = _seconds_after_boot(psutil.Process(pid))
        return cls(kind, this_host(), pid, started, token or secrets.token_hex(8))


def acquire(
    session: Session, table: LeasedTable, row_id: str, owner: LeaseOwner, lease_seconds: float
) -> None:
    """Take a row's lease, or make one's own last longer.

    Args:
        session: of a write transaction.
        table: table of the row.
        row_id: the row.
        owner: who wants it.
        lease_seconds: how long it lasts unless it is renewed.

    Raises:
        NotFoundError: no such row.
        ConflictError: somebody else holds it; says who, and until when.
    """
    row = _found(locked(session, table, row_id), table, row_id)
    now = database_time(session)
    held = live_holder(row, now)
    if held is not None and row.lease_token != owner.token:
        raise ConflictError(
            f"{row.called} is being worked on by the {held.kind} in process "
            f"{held.pid} on {held.host} until {row.lease_expires_at:%H:%M:%S} UTC; stop that "
            "process, or wait"
        )
    row.lease_token = owner.token
    row.lease_owner_kind = owner.kind
    row.lease_host = owner.host
    row.lease_pid = owner.pid
    row.lease_process_started = owner.process_started
    row.lease_expires_at = now + timedelta(seconds=lease_seconds)


def renew(
    session: Session, table: LeasedTable, row_id: str, owner: LeaseOwner, lease_seconds: float
) -> None:
    """Make a lease last from now on.

    Raises:
        NotFoundError: no such row.
        ConflictError: the lease was lost to somebody else; stop working on the row.
    """
    row = _found(locked(session, table, row_id), table, row_id)
    if row.lease_token != owner.token:
        taker = f"process {row.lease_pid} took it over" if row.lease_token else "it was released"
        raise ConflictError(f"the lease on {row.called} is lost: {taker}; nothing more is written")
    row.lease_expires_at = database_time(session) + timedelta(seconds=lease_seconds)


def release(session: Session, table: LeasedTable, row_id: str, owner: LeaseOwner) -> None:
    """Give a lease back; one that was lost meanwhile is left to its new owner."""
    row = _found(locked(session, table, row_id), table, row_id)
    if row.lease_token == owner.token:
        row.lease_token = row.lease_owner_kind = row.lease_host = None
        row.lease_pid = row.lease_process_started = row.lease_expires_at = None


def holder(session: Session, table: LeasedTable, row_id: str) -> LeaseHolder | None:
    """Who works on a row at present, or None: its lease ran out, or its owner is surely dead.

    Raises:
        NotFoundError: no such row.
    """
    row = _found(session.get(table, row_id), table, row_id)
    return live_holder(row, database_time(session))


def database_time(session: Session) -> datetime:
    """The present moment on the database's clock (not the start of the transaction)."""
    if session.get_bind().dialect.name == "sqlite":
        written = session.scalar(select(func.strftime("%Y-%m-%dT%H:%M:%f", "now")))
        return datetime.fromisoformat(str(written)).replace(tzinfo=UTC)
    moment: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return moment.astimezone(UTC)


def _found(row: LeaseColumns | None, table: LeasedTable, row_id: str) -> LeaseColumns:
    if row is None:
        noun = re.sub(r"(?<!^)(?=[A-Z])", " ", table.__name__).lower()  # one word each
        raise NotFoundError(f"there is no {noun} {row_id!r}")
    return row


def live_holder(row: LeaseColumns, now: datetime) -> LeaseHolder | None:
    """Who holds a row's lease at a moment of the database's clock."""
    if row.lease_expires_at is None or row.lease_expires_at <= now or _is_dead(row):
        return None
    host = (row.lease_host or "").split("/")[0]
    return LeaseHolder(row.lease_owner_kind or "", host, row.lease_pid or 0)


def _is_dead(row: LeaseColumns) -> bool:
    """True only if the owner lived on this host and surely does no more."""
    if row.lease_host != this_host() or row.lease_pid is None:
        return False
    try:
        process = psutil.Process(row.lease_pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # ended; its parent has not looked yet
            return True
        started = _seconds_after_boot(process)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
    known = row.lease_process_started
    return known is not None and abs(started - known) > _SLACK_SECONDS


def _seconds_after_boot(process: psutil.Process) -> float:
    """When a process began, from when its host did: both move alike when a clock is set."""
    return process.create_time() - psutil.boot_time()


def this_host() -> str:
    """Name of the host as far as process numbers go: others may share the name only.

    Containers differ in their namespace, and copies of a machine in when they began.
    """
    namespace, boot = Path("/proc/self/ns/pid"), Path("/proc/sys/kernel/random/boot_id")
    suffix = f"/{namespace.readlink()}" if namespace.is_symlink() else ""
    with suppress(OSError):  # no Linux
        suffix += f"/{boot.read_text()[:8]}"
    return socket.gethostname() + suffix

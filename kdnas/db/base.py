"""What all tables share: naming, types that mean the same on both dialects, and ids."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: ``timestamptz`` on PostgreSQL, naive UTC text on SQLite, aware UTC in Python.

    A naive value is refused, since nobody can say which moment it means.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn an aware value into UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time {value} has no time zone")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give back an aware value in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of all tables; constraints have names, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (read by SQLAlchemy as a class attribute)
        datetime: UtcDateTime,
        str: Text,
        float: Double,
        bytes: LargeBinary,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class LeaseColumns:
    """Who works on a row, until when; all null while nobody does. See ``queue.leases``."""

    lease_token: Mapped[str | None]
    lease_owner_kind: Mapped[str | None]
    lease_host: Mapped[str | None]
    lease_pid: Mapped[int | None]
    lease_process_started: Mapped[float | None]
    lease_expires_at: Mapped[datetime | None]

    @property
    def called(self) -> str:
        """What the row is called in a sentence."""
        return type(self).__name__.lower()


LEASE_COLUMNS = tuple(LeaseColumns.__annotations__)
"""Names of all of them."""


def utc_now() -> datetime:
    """The present moment, aware."""
    return datetime.now(UTC)


class Dated:
    """When a row was written."""

    created_at: Mapped[datetime] = mapped_column(default=utc_now)


RowNumber = BigInteger().with_variant(Integer, "sqlite")
"""Type of keys that the database counts; SQLite counts only in an ``INTEGER PRIMARY KEY``."""


def one_of(column: str, values: Sequence[str]) -> CheckConstraint:
    """Constrain a text column to known values."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


Row = TypeVar("Row")


def locked(
    session: Session, table: type[Row], key: object, *, skip_locked: bool = False
) -> Row | None:
    """Read a row anew and keep it from other writers until the end of the transaction.

    It is locked ``FOR NO KEY UPDATE``: a plain ``FOR UPDATE`` would keep others from writing events
    of that row's job while its holder waits for their lock on the numbering, a deadlock. SQLite
    ignores it, having one writer.

    Returns:
        None if there is no such row, or if somebody else has its lock and ``skip_locked`` says
        not to wait.
    """
    lock = {"key_share": True, "skip_locked": skip_locked}
    return session.get(table, key, with_for_update=lock, populate_existing=True)


def insert(session: Session, table: type[Base] | Table) -> postgresql.Insert | sqlite.Insert:
    """INSERT … ON CONFLICT, which both dialects have but SQLAlchemy spells twice."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


class _Numbers:
    """Rising numbers of 80 bits: 45 of the time in milliseconds, 35 at random."""

    def __init__(self) -> None:
        self._lock, self._newest = threading.Lock(), 0

    def next(self) -> int:
        now = time.time_ns() // 1_000_000
        with self._lock:
            after = self._newest + 1 + secrets.randbits(24)
            self._newest = max(now << 35 | secrets.randbits(35), after)
            return self._newest


_NUMBERS = _Numbers()


def new_id() -> str:
    """Make an id of 16 characters, safe in a URL: 9 of the time in milliseconds, 7 at random.

    Ids sort by the time of their making, those of one process also within a millisecond; 35 random
    bits keep apart what several processes make at once.
    """
    number = _NUMBERS.next()
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(75, -1, -5))

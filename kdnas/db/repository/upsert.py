"""INSERT … ON CONFLICT, which both dialects have but SQLAlchemy spells twice."""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from kdnas.db.base import Base


def insert(session: Session, table: type[Base] | Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the session's dialect, with ``on_conflict_do_nothing`` and ``…_do_update``."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)

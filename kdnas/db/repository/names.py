"""Names for what the user did not name."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.base import new_id
from kdnas.db.models import Distillation, Pipeline, Search
from kdnas.db.repository.upsert import insert
from kdnas.errors import ConflictError

Row = TypeVar("Row", Search, Distillation, Pipeline)

# fmt: off
_QUALITIES = (
    "amber", "brave", "bright", "calm", "clear", "clever", "crisp", "eager", "early", "fair",
    "fast", "fine", "fresh", "gentle", "glad", "golden", "happy", "keen", "kind", "light",
    "lively", "lucid", "mellow", "mild", "neat", "noble", "patient", "plain", "proud", "quick",
    "quiet", "ready", "rosy", "sharp", "silver", "smart", "smooth", "snowy", "soft", "steady",
    "sunny", "swift", "tidy", "warm", "wise",
)
_CREATURES = (
    "badger", "beaver", "bison", "crane", "deer", "dolphin", "dove", "eagle", "falcon", "ferret",
    "finch", "fox", "gecko", "hare", "hawk", "heron", "ibis", "jay", "kestrel", "koala", "lark",
    "lemur", "lynx", "marten", "newt", "orca", "osprey", "otter", "owl", "panda", "pika",
    "plover", "puffin", "quail", "raven", "robin", "seal", "shrew", "sparrow", "stork", "swan",
    "tern", "toad", "trout", "vole", "wren",
)
# fmt: on


def find_named(session: Session, table: type[Row], reference: str) -> Row | None:
    """Find a row by id or name; None if there is neither."""
    if "\0" in reference:  # no text to PostgreSQL, and no name to anybody
        return None
    return session.get(table, reference) or session.scalar(
        select(table).where(table.name == reference)
    )


def add_named(session: Session, table: type[Row], name: str | None, values: dict[str, Any]) -> Row:
    """Write a row under a name of its own; invents one such as ``quiet-otter-3f9c`` if need be.

    The conflict is asked for instead of caught: a savepoint would hide the reason when the disk
    is full, since SQLite then drops the savepoint with the transaction.

    Raises:
        ConflictError: the wanted name is taken.
    """
    row_id = None
    while row_id is None:
        row_id = session.scalar(
            insert(session, table)
            .values(id=new_id(), name=name or _pleasant_name(), **values)
            .on_conflict_do_nothing(index_elements=["name"])
            .returning(table.id)
        )
        if row_id is None and name is not None:
            refuse_taken_name(session, table, name)
    return session.get_one(table, row_id)


def refuse_taken_name(session: Session, table: type[Row], name: str) -> None:
    """Raise ConflictError if a row has this name; what is not over can be gone on with."""
    status = session.scalar(select(table.status).where(table.name == name))
    if status is None:
        return
    unfinished = status in ("running", "paused", "failed")
    way = "resume it by that name, or choose another" if unfinished else "choose another name"
    raise ConflictError(
        f"there is already a {table.__name__.lower()} named {name!r} ({status}); {way}"
    )


def _pleasant_name() -> str:
    return f"{secrets.choice(_QUALITIES)}-{secrets.choice(_CREATURES)}-{secrets.token_hex(2)}"

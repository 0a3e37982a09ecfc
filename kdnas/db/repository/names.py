"""Names for what the user did not name."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from kdnas.db.models import Distillation, Search
from kdnas.errors import ConflictError

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


def add_named(session: Session, row: Search | Distillation, name: str | None) -> None:
    """Add a row under a name of its own; invents one such as ``quiet-otter-3f9c`` if need be.

    Raises:
        ConflictError: the wanted name is taken.
    """
    noun, table = type(row).__name__.lower(), type(row)
    if name is None:
        name = f"{secrets.choice(_QUALITIES)}-{secrets.choice(_CREATURES)}-{secrets.token_hex(2)}"
        while session.scalar(select(table.id).where(table.name == name)):
            name = f"{name}-{secrets.token_hex(2)}"
    row.name = name
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise ConflictError(
            f"there is already a {noun} named {name!r}; choose another name"
        ) from None

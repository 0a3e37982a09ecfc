"""Names of jobs: whether one is taken, which is nearest, and one for what the user did not name."""

from __future__ import annotations

import difflib
import secrets
import unicodedata
from itertools import chain, count

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.models import Job, kind_of
from kdnas.errors import ConflictError, NotFoundError
from kdnas.specs.naming import LONGEST_NAME, checked_name

_NAMES_LOOKED_AT = 1000
_DIGITS = 8
"""Room for a number behind a name."""

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


def allowed_name(session: Session, wanted: str) -> str:
    """Return a wanted name as it is stored.

    Raises:
        SpecError: it is no name.
        ConflictError: it is the id of a job, by which that is found first.
    """
    name = checked_name(wanted)
    if session.get(Job, name) is not None:
        raise ConflictError(f"name {name!r} is the id of a job; choose another name", field="name")
    return name


def as_stored(reference: str) -> str:
    """The spelling in which names are stored; what is no name stays as it is."""
    return unicodedata.normalize("NFC", reference)


def unknown(session: Session, table: type[Job], reference: str) -> NotFoundError:
    """Say that there is no such job, and which name is nearest."""
    query = select(table.name).where(table.name.is_not(None)).order_by(table.id.desc())
    known = [str(name) for name in session.scalars(query.limit(_NAMES_LOOKED_AT))]
    near = difflib.get_close_matches(reference, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    said = f"there is no {noun_of(kind_of(table))} {reference!r}{meant}"
    return NotFoundError(said, listed_in=None if near else table.listed_in)


def taken(table: type[Job], name: str, status: str | None = None) -> ConflictError:
    """Say that a job of this kind has this name; one that rests can be resumed by it."""
    way = "choose another name"
    if status in ("paused", "failed"):
        way = "resume it by that name, or choose another"
    stands = "" if status is None else f" ({status})"
    return ConflictError(
        f"there is already {with_article(noun_of(kind_of(table)))} named {name!r}{stands}; {way}",
        field="name",
    )


def refuse_taken_name(session: Session, table: type[Job], name: str) -> None:
    """Raise ConflictError if a job of this kind has this name."""
    status = session.scalar(select(table.status).where(table.name == name))
    if status is not None:
        raise taken(table, name, status)


def is_taken(session: Session, table: type[Job], name: str) -> bool:
    """Whether a job of this kind has this name."""
    return session.scalar(select(table.id).where(table.name == name)) is not None


def free_name(session: Session, table: type[Job], stem: str, end: str = "") -> str:
    """Return a name that no job of this kind has.

    Args:
        session: of any transaction.
        table: of the kind.
        stem: what it begins with, cut where the whole would be too long.
        end: what it ends with; where that is taken, the first number follows that makes it free.
    """
    wanted = f"{stem[: LONGEST_NAME - len(end) - _DIGITS]}{end}"
    names = chain([wanted], (f"{wanted}.{number}" for number in count(2)))
    return next(name for name in names if not is_taken(session, table, name))


def noun_of(kind: str) -> str:
    """The word for the jobs of a kind in a sentence."""
    return kind.replace("_", " ")


def with_article(noun: str) -> str:
    """A search, an evaluation."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def invented_name(stem: str | None) -> str:
    """A name such as ``quiet-otter-3f9c``, or one that begins with ``stem``."""
    if stem is not None:
        return f"{stem}-{secrets.token_hex(3)}"
    return f"{secrets.choice(_QUALITIES)}-{secrets.choice(_CREATURES)}-{secrets.token_hex(2)}"

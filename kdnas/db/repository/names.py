"""Jobs by name: finding one, adding one, and names for what the user did not name."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Table, or_, select
from sqlalchemy.orm import Session

from kdnas.db.base import new_id, utc_now
from kdnas.db.models import Job, JobLabel, kind_of
from kdnas.db.repository.events import append_event
from kdnas.db.repository.upsert import insert
from kdnas.errors import ConflictError, NotFoundError

AnyJob = TypeVar("AnyJob", bound=Job)

_NAMES_LOOKED_AT = 1000

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


def find_named(session: Session, table: type[AnyJob], reference: str) -> AnyJob:
    """Find a job of a table, or of any kind, by id or name.

    Raises:
        NotFoundError: there is neither; says which name is nearest.
        ConflictError: jobs of several kinds have the name.
    """
    if "\0" in reference:  # no text to PostgreSQL, and no name to anybody
        raise NotFoundError(unknown(session, table, reference))
    query = select(Job.id, Job.kind).where(or_(Job.id == reference, Job.name == reference))
    if table is not Job:
        query = query.where(Job.kind == kind_of(table))
    found = [(job_id, kind) for job_id, kind in session.execute(query)]
    found = [one for one in found if one[0] == reference] or found
    if not found:
        raise NotFoundError(unknown(session, table, reference))
    if len(found) > 1:
        nouns = " and of ".join(_one(kind.replace("_", " ")) for _, kind in found)
        raise ConflictError(f"{reference!r} is the name of {nouns}; say which one by its id")
    return session.get_one(table, found[0][0])


def unknown(session: Session, table: type[Job], reference: str) -> str:
    """Say that there is no such job, and which name is nearest."""
    query = select(table.name).where(table.name.is_not(None)).order_by(table.id.desc())
    known = [str(name) for name in session.scalars(query.limit(_NAMES_LOOKED_AT))]
    near = difflib.get_close_matches(reference, known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else f"; `kdnas {table.listed_by}` shows all"
    return f"there is no {noun_of(table)} {reference!r}{meant}"


def noun_of(table: type[Job]) -> str:
    """The word for the jobs of a table in a sentence."""
    return "job" if table is Job else kind_of(table).replace("_", " ")


def add_job(
    session: Session,
    table: type[AnyJob],
    requested: Mapping[str, Any],
    *,
    name: str | None = None,
    stem: str | None = None,
    job_id: str | None = None,
    parent_id: str | None = None,
    owner_kind: str = "service",
    labels: Sequence[str] = (),
    **own: Any,
) -> AnyJob:
    """Write a queued job, with an event; invents a name such as ``quiet-otter-3f9c`` if need be.

    The conflict is asked for instead of caught: a savepoint would hide the reason when the disk
    is full, since SQLite then drops the savepoint with the transaction.

    Args:
        session: of a write transaction.
        table: of its kind.
        requested: what the user asked for, as plain JSON.
        name: to call it by.
        stem: what an invented name begins with; None invents all of it.
        job_id: None makes one.
        parent_id: the job that asks for it.
        owner_kind: who is to do it, ``cli`` or ``service``.
        labels: for finding it again.
        own: columns of its kind's own table.

    Raises:
        ConflictError: the wanted name is taken.
    """
    values: dict[str, Any] = {
        "kind": kind_of(table),
        "requested": dict(requested),
        "parent_id": parent_id,
        "owner_kind": owner_kind,
        "status": "queued",
        "labels": list(dict.fromkeys(labels)),
        "phase_since": utc_now(),
    }
    row_id = None
    while row_id is None:
        called = name or _invented_name(stem)
        row_id = session.scalar(
            insert(session, cast(Table, Job.__table__))
            .values(id=job_id or new_id(), name=called, **values)
            .on_conflict_do_nothing(index_elements=["kind", "name"])
            .returning(Job.id)
        )
        if row_id is None and name is not None:
            refuse_taken_name(session, table, name)
    session.execute(cast(Table, table.__table__).insert().values(id=row_id, **own))
    session.add_all(JobLabel(job_id=row_id, label=label) for label in values["labels"])
    row = session.get_one(table, row_id)
    payload = {"name": row.name} | {k: v for k, v in own.items() if k in table.told_when_created}
    append_event(session, f"{row.kind}_created", {**row.about, **payload}, job_id=row.id)
    return row


def refuse_taken_name(session: Session, table: type[Job], name: str) -> None:
    """Raise ConflictError if a job of this kind has this name; what is not over can be resumed."""
    status = session.scalar(select(table.status).where(table.name == name))
    if status is None:
        return
    unfinished = status in ("running", "paused", "failed")
    way = "resume it by that name, or choose another" if unfinished else "choose another name"
    raise ConflictError(f"there is already {_one(noun_of(table))} named {name!r} ({status}); {way}")


def taken_meanwhile(table: type[Job], name: str) -> ConflictError:
    """Say that somebody else was quicker to take a name."""
    return ConflictError(
        f"there is already {_one(noun_of(table))} named {name!r}; choose another name"
    )


def _one(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _invented_name(stem: str | None) -> str:
    if stem is not None:
        return f"{stem}-{secrets.token_hex(3)}"
    return f"{secrets.choice(_QUALITIES)}-{secrets.choice(_CREATURES)}-{secrets.token_hex(2)}"

"""Which names the stored jobs mention: of artefacts, of other jobs, of folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import JSON, Text, inspect, select
from sqlalchemy.orm import Session

from kdnas.db.base import Base
from kdnas.db.models import Job, PipelineMember, TaskDistillationRun
from kdnas.db.queue import leases
from kdnas.records import SearchStatus

_WORD = re.compile(r"\w[\w.-]*")
_PART = re.compile(r"[\w-]+")


def words_of_jobs(session: Session) -> frozenset[str]:
    """Every word in a job of any kind and state: in its request, its results, its paths.

    A word is what may name an artefact or a folder, and each part of it between dots. Nothing that
    a job refers to is missing, whatever the field is called that does so; what merely looks like a
    name does no harm.
    """
    found: set[str] = set()
    tables: list[type[Base]] = [*_tables(Job), PipelineMember, TaskDistillationRun]
    # One of an installed package may never have been made here: then it has no rows.
    there = set(inspect(session.connection()).get_table_names())
    for table in tables:
        if table.__tablename__ not in there:
            continue
        for text in _texts(session, table):
            for word in _WORD.findall(text):
                found.add(word)
                if "." in word:
                    found.update(_PART.findall(word))
    return frozenset(found)


def statuses(session: Session) -> Mapping[str, SearchStatus]:
    """Id → status of every job."""
    return {row.id: row.status for row in session.execute(select(Job.id, Job.status))}


def held_jobs(session: Session) -> frozenset[str]:
    """Ids of jobs that somebody works on at present."""
    now = leases.database_time(session)
    rows = session.scalars(select(Job).where(Job.lease_token.is_not(None)))
    return frozenset(row.id for row in rows if leases.live_holder(row, now) is not None)


def _tables(table: type[Job]) -> Iterator[type[Job]]:
    yield table
    for more in table.__subclasses__():
        if "__tablename__" in vars(more):  # else of a package that is gone
            yield from _tables(more)


def _texts(session: Session, table: type[Base]) -> Iterator[str]:
    """Texts and documents in the rows of one table, without those that it inherits."""
    mapped = inspect(table).local_table
    columns = [c for c in mapped.columns if isinstance(c.type, Text | JSON)]
    for row in session.execute(select(*columns).execution_options(yield_per=500)):
        for value in row:
            yield from _texts_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)

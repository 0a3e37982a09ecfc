"""Searches: create, find, list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.models import Search
from kdnas.db.records import OwnerKind, record_of
from kdnas.db.repository.jobs import add_job, get_job, locked_job
from kdnas.records import SearchFacts, SearchRecord


def create_search(
    session: Session,
    spec: Mapping[str, Any],
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
    parent_id: str | None = None,
) -> SearchRecord:
    """Write a queued search, with an event; ``parent_id`` is the job that asks for it.

    Raises:
        ConflictError: the name is taken.
    """
    row = add_job(session, Search, spec, name=name, owner_kind=owner_kind, parent_id=parent_id)
    return record_of(row, SearchRecord)


def get_search(session: Session, reference: str) -> SearchRecord:
    """Read a search by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return record_of(get_job(session, reference, Search), SearchRecord)


def set_search_facts(session: Session, search_id: str, facts: SearchFacts) -> None:
    """Write down what preparing a search has found out.

    Raises:
        NotFoundError: no such search.
    """
    locked_job(session, search_id, Search).facts = facts.to_json()


def search_facts(session: Session, search_id: str) -> SearchFacts | None:
    """Return what preparing a search has found out; None before."""
    found = session.scalar(select(Search.facts).where(Search.id == search_id))
    return None if found is None else SearchFacts(**found)

"""Searches: create, find, list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.models import Search
from kdnas.db.records import OwnerKind
from kdnas.db.repository.jobs import get_job, locked_job
from kdnas.db.repository.names import add_job
from kdnas.records import SearchFacts, SearchRecord, SearchStatus


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
    return _record(
        add_job(session, Search, spec, name=name, owner_kind=owner_kind, parent_id=parent_id)
    )


def get_search(session: Session, reference: str) -> SearchRecord:
    """Read a search by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return _record(get_job(session, reference, Search))


def list_searches(
    session: Session,
    *,
    status: SearchStatus | None = None,
    owner_kind: OwnerKind | None = None,
    before_id: str | None = None,
    limit: int = 100,
) -> list[SearchRecord]:
    """Searches, the newest first; ``before_id`` goes on after the last one of a page."""
    query = select(Search).order_by(Search.id.desc()).limit(limit)
    if status is not None:
        query = query.where(Search.status == status)
    if owner_kind is not None:
        query = query.where(Search.owner_kind == owner_kind)
    if before_id is not None:
        query = query.where(Search.id < before_id)
    return [_record(row) for row in session.scalars(query)]


def set_search_facts(session: Session, search_id: str, facts: SearchFacts) -> None:
    """Write down what preparing a search has found out.

    Raises:
        NotFoundError: no such search.
    """
    locked_job(session, search_id, Search).facts = facts.to_json()
    session.flush()


def search_facts(session: Session, search_id: str) -> SearchFacts | None:
    """Return what preparing a search has found out; None before."""
    found = session.scalar(select(Search.facts).where(Search.id == search_id))
    return None if found is None else SearchFacts(**found)


def _record(row: Search) -> SearchRecord:
    return SearchRecord(
        id=row.id,
        name=row.name or row.id,
        status=cast(SearchStatus, row.status),
        spec=row.spec,
        owner_kind=cast(OwnerKind, row.owner_kind),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=row.error,
    )

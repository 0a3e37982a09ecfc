"""Searches: create, find, list, change status."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import FINAL_STATUSES, Candidate, Search
from kdnas.db.records import OwnerKind
from kdnas.db.repository.events import ROW_LOCK, append_event
from kdnas.db.repository.names import add_named, find_named
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchFacts, SearchRecord, SearchStatus


def create_search(
    session: Session,
    spec: Mapping[str, Any],
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
    pipeline_id: str | None = None,
) -> SearchRecord:
    """Write a queued search, with an event; ``pipeline_id`` says of which pipeline it is a part.

    Raises:
        ConflictError: the name is taken.
    """
    values = {"spec": dict(spec), "owner_kind": owner_kind, "status": "queued"}
    row = add_named(session, Search, name, values)
    payload = {"name": row.name}
    append_event(session, "search_created", payload, search_id=row.id, pipeline_id=pipeline_id)
    return _record(row)


def get_search(session: Session, reference: str) -> SearchRecord:
    """Read a search by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    row = find_named(session, Search, reference)
    if row is None:
        raise NotFoundError(_unknown(reference))
    return _record(row)


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


def set_search_status(
    session: Session,
    search_id: str,
    status: SearchStatus,
    error: str | None = None,
    *,
    expected: Collection[SearchStatus] | None = None,
) -> SearchRecord:
    """Change a search's status, with an event.

    The first start is kept as ``started_at``; ``finished_at`` belongs to final statuses only.

    Args:
        session: of a write transaction.
        search_id: the search.
        status: the new status.
        error: why it failed.
        expected: change it only if the status is one of these.

    Raises:
        NotFoundError: no such search.
        ConflictError: its status is not among ``expected``.
    """
    row = locked_search(session, search_id)
    if expected is not None and row.status not in expected:
        raise ConflictError(
            f"search {row.name!r} is {row.status}, so it cannot become {status}; that takes "
            f"{' or '.join(expected)}"
        )
    now = utc_now()
    row.status, row.error = status, error
    if status == "running" and row.started_at is None:
        row.started_at = now
    row.finished_at = now if status in FINAL_STATUSES else None
    append_event(session, "search_status", {"status": status, "error": error}, search_id=row.id)
    return _record(row)


def set_search_spec(session: Session, search_id: str, spec: Mapping[str, Any]) -> None:
    """Store a search's request anew, now with nothing left open.

    Raises:
        NotFoundError: no such search.
    """
    locked_search(session, search_id).spec = dict(spec)
    session.flush()


def set_search_facts(session: Session, search_id: str, facts: SearchFacts) -> None:
    """Write down what preparing a search has found out.

    Raises:
        NotFoundError: no such search.
    """
    locked_search(session, search_id).facts = facts.to_json()
    session.flush()


def search_facts(session: Session, search_id: str) -> SearchFacts | None:
    """Return what preparing a search has found out; None before."""
    found = session.scalar(select(Search.facts).where(Search.id == search_id))
    return None if found is None else SearchFacts(**found)


def delete_search(session: Session, search_id: str) -> None:
    """Delete a search with its episodes, candidates and events; losses stay in their table.

    Raises:
        NotFoundError: no such search.
        ConflictError: it is running.
    """
    row = locked_search(session, search_id)
    if row.status == "running":
        raise ConflictError(f"search {row.name!r} is running; cancel it before deleting it")
    # Candidates first, in the order in which a late result takes its locks.
    session.execute(select(Candidate.id).where(Candidate.search_id == search_id).with_for_update())
    session.execute(delete(Search).where(Search.id == search_id))


def require_search(session: Session, search_id: str) -> None:
    """Raise NotFoundError unless there is a search with this id."""
    if session.scalar(select(Search.id).where(Search.id == search_id)) is None:
        raise NotFoundError(_unknown(search_id))


def locked_search(session: Session, search_id: str) -> Search:
    """The row of a search, kept from other writers until the end of the transaction."""
    row = session.get(Search, search_id, with_for_update=ROW_LOCK, populate_existing=True)
    if row is None:
        raise NotFoundError(_unknown(search_id))
    return row


def _unknown(reference: str) -> str:
    return f"there is no search {reference!r}; `kdnas searches list` shows all searches"


def _record(row: Search) -> SearchRecord:
    return SearchRecord(
        id=row.id,
        name=row.name,
        status=cast(SearchStatus, row.status),
        spec=row.spec,
        owner_kind=cast(OwnerKind, row.owner_kind),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=row.error,
    )

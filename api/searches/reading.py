"""Searches as REST and the command line show them: a page of their list, and one in full."""

from __future__ import annotations

from functools import partial
from typing import Any

from api.http.rendering import sorting
from api.searches.remembered import explored_states, remembered, remembered_figures
from api.searches.schemas import SearchQuery
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import candidates, explored
from kdnas.db.lists import search_pages
from kdnas.db.lists.pages import PageOf
from kdnas.db.repository import searches
from kdnas.records import SearchRecord
from kdnas.search.summary import summarise, summarise_states

NUM_BEST = 20


def read_page(database: Database, session: Session, query: SearchQuery) -> PageOf[search_pages.Row]:
    """Read a page of searches; each row is a :class:`~api.searches.schemas.SearchShape`.

    Raises:
        RequestError: the cursor is that of another list.
    """
    sort, descending = sorting(query.sort)
    return search_pages.list_searches(
        session,
        query.filter(),
        partial(remembered_figures, database),
        sort=sort,
        descending=descending,
        limit=query.limit,
        cursor=query.cursor,
    )


def read_search(database: Database, session: Session, search_id: str) -> dict[str, Any]:
    """Read one search as a :class:`~api.searches.schemas.SearchDetail`.

    Raises:
        NotFoundError: there is none.
    """
    record = searches.get_search(session, search_id)
    found = remembered(
        database, session, record.id, "found", lambda: _found(database, session, record)
    )
    facts = searches.search_facts(session, record.id)
    return {
        "id": record.id,
        "name": record.name,
        "status": record.status,
        "owner_kind": record.owner_kind,
        "error": record.error,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        **found,
        "spec": dict(record.spec),
        "warnings": [] if facts is None else facts.warnings,
    }


def search_summary(search_id: str, database: Database) -> dict[str, Any]:
    """Sum up a stored search at any moment, with all of its states: what `kdnas search` prints.

    Raises:
        NotFoundError: no such search.
    """
    with database.read() as session:
        record = searches.get_search(session, search_id)
        return summarise(record, candidates.list_episodes(session, record.id))


def _found(database: Database, session: Session, record: SearchRecord) -> dict[str, Any]:
    states = explored_states(database, session, record.id)
    counts = explored.state_counts(session, record.id)
    return {
        **search_pages.search_figures(session, record),
        "summary": summarise_states(record, counts, states, NUM_BEST),
    }

"""Searches in lists with their figures, and in full with what they found; each found once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Final

from fastapi.responses import Response

from api.http.rendering import answered, as_json
from api.searches.remembered import explored_states, remembered, remembered_figures
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import candidates, explored
from kdnas.db.lists import search_pages
from kdnas.db.lists.job_pages import Row
from kdnas.db.repository import searches
from kdnas.records import SearchRecord
from kdnas.search.summary import summarise, summarise_states
from kdnas.search_space import num_states

NUM_BEST = 20


def answer_remembered(
    database: Database,
    reference: str,
    what: tuple[object, ...],
    find: Callable[[Session, SearchRecord], Any],
    beside: Callable[[Session, SearchRecord], Hashable] = lambda *_: None,
) -> Response:
    """Answer with what was found out about a search before, or find it.

    Args:
        database: where the search is.
        reference: its id or name.
        what: names what is looked for, with every parameter that it depends on.
        find: reads it.
        beside: reads what it depends on and what changes without an event of the search.

    Raises:
        NotFoundError: there is no such search.
    """
    with database.read() as session:
        record = searches.get_search(session, reference)
        key = (*what, beside(session, record))
        text = remembered(session, record.id, key, lambda: as_json(find(session, record)))
    return answered(text)


def search_summary(search_id: str, database: Database) -> dict[str, Any]:
    """Sum up a stored search at any moment, with all of its states: what `kdnas search` prints.

    Raises:
        NotFoundError: no such search.
    """

    def read(session: Session) -> dict[str, Any]:
        record = searches.get_search(session, search_id)
        return summarise(record, candidates.list_episodes(session, record.id))

    return database.ask(read)


def _with_figures(session: Session, rows: list[Row]) -> list[Row]:
    asked = {
        row["id"]: search_pages.Asked(row["_loss"], row["_episodes"], row["goal"]) for row in rows
    }
    found = remembered_figures(session, asked, {row["id"]: row["_event"] or 0 for row in rows})
    return [{**row, **found[row["id"]]} for row in rows]


def _with_summary(session: Session, rows: list[Row]) -> list[Row]:
    return [{**row, **_found(session, row["id"], row["_event"] or 0)} for row in rows]


def _found(session: Session, search_id: str, event: int) -> Row:
    facts = searches.search_facts(session, search_id)
    summary = remembered(session, search_id, "summary", lambda: _summary(session, search_id), event)
    if facts is None:
        return {"warnings": [], "space_size": None, "latency_profile": None, "summary": summary}
    return {
        "warnings": facts.warnings,
        "space_size": num_states(facts.axes, facts.head_multiple),
        "latency_profile": facts.latency_profile,
        "summary": summary,
    }


def _summary(session: Session, search_id: str) -> dict[str, Any]:
    record = searches.get_search(session, search_id)
    counts = explored.state_counts(session, search_id)
    return summarise_states(record, counts, explored_states(session, search_id), NUM_BEST)


LISTING: Final = replace(search_pages.LISTING, complete=_with_figures, detail=_with_summary)
"""The list of searches with their figures; one in full has its summary."""

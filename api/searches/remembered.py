"""What was found out about searches, until something happens to them.

Charts, rankings and summaries of a search are asked for again and again by everybody who looks at
it, and each needs every state. They are worked out once after each event of the search, not at
each request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from kdnas.db.engine import Session
from kdnas.db.exploration import explored
from kdnas.db.lists.job_pages import Row
from kdnas.db.lists.search_pages import Asked, read_figures, read_points
from kdnas.records import ExploredState
from kdnas.search.hypervolume import hypervolume

Found = TypeVar("Found")

_MOST_ANSWERS, _MOST_FIGURES = 64, 2000
"""Answers may have a megabyte each, figures are a few numbers of a search."""


class _Memory:
    """What was found in each database, and after which event; the oldest in use is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._found: WeakKeyDictionary[Any, OrderedDict[Hashable, tuple[int, object]]]
        self._found = WeakKeyDictionary()

    def known(self, session: Session, key: Hashable) -> tuple[int, object] | None:
        """Return an entry with the number of its event."""
        with self._lock:
            entries = self._entries(session)
            if key in entries:
                entries.move_to_end(key)
            return entries.get(key)

    def keep(self, session: Session, key: Hashable, event: int, found: object) -> None:
        """Keep an entry, unless it is older than what is there."""
        with self._lock:
            entries = self._entries(session)
            if key in entries and entries[key][0] > event:
                return
            entries[key] = (event, found)
            entries.move_to_end(key)
            while len(entries) > self._most:
                entries.popitem(last=False)

    def _entries(self, session: Session) -> OrderedDict[Hashable, tuple[int, object]]:
        """Those of a session's database, which is told by its connections."""
        return self._found.setdefault(session.get_bind().engine.pool, OrderedDict())


_answers, _figures = _Memory(_MOST_ANSWERS), _Memory(_MOST_FIGURES)
_at_work: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
_at_work_lock = threading.Lock()


def remembered(
    session: Session,
    search_id: str,
    what: Hashable,
    find: Callable[[], Found],
    event: int | None = None,
) -> Found:
    """Return what was found before, or find it.

    Args:
        session: sees one state of the database, so that the newest event tells which.
        search_id: the search.
        what: names what is looked for, with every parameter that it depends on.
        find: reads in the same session and depends on nothing that changes without an event.
        event: the newest one of the search; None reads which.
    """
    if event is None:
        event = explored.newest_event(session, search_id)
    key = (search_id, what)
    with _at_work_lock:
        working = _at_work.setdefault(key, threading.Lock())  # gone with the last who holds it
    with working:  # others who ask for the same wait for it
        known = _answers.known(session, key)
        if known is not None and known[0] == event:
            return cast(Found, known[1])
        found = find()
        _answers.keep(session, key, event, found)
        return found


def remembered_figures(
    session: Session, searches: Mapping[str, Asked], events: Mapping[str, int]
) -> dict[str, Row]:
    """Return what :func:`search_pages.read_figures` does, for searches with news from there.

    Beside that the hypervolume of those whose goal is the front; None before their first state.

    Args:
        session: as for :func:`remembered`.
        searches: whose figures.
        events: the newest one of each.
    """
    known = {search_id: _figures.known(session, search_id) for search_id in searches}
    found = {
        search_id: cast(Row, entry[1])
        for search_id, entry in known.items()
        if entry is not None and entry[0] == events[search_id]
    }
    news = {search_id: asked for search_id, asked in searches.items() if search_id not in found}
    for search_id, figures in _read(session, news).items() if news else ():
        _figures.keep(session, search_id, events[search_id], figures)
        found[search_id] = figures
    return found


def _read(session: Session, searches: Mapping[str, Asked]) -> dict[str, Row]:
    fronts = {search_id: asked for search_id, asked in searches.items() if asked.goal == "front"}
    points = read_points(session, fronts) if fronts else {}
    volumes = {search_id: hypervolume(found) for search_id, found in points.items() if found}
    return {
        search_id: {**figures, "hypervolume": volumes.get(search_id)}
        for search_id, figures in read_figures(session, searches).items()
    }


def explored_states(session: Session, search_id: str) -> list[ExploredState]:
    """Return the states of a search that have a reward, as they are within the transaction."""
    return remembered(
        session, search_id, "states", lambda: explored.explored_states(session, search_id)
    )

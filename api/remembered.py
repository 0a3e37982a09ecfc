"""What was found out about searches, until something happens to them.

Charts, rankings and summaries of a search are asked for again and again by everybody who looks at
it, and each needs every state. They are worked out once after each event of the search, not at
each request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from kdnas.db.engine import Database, Session
from kdnas.db.repository import explored
from kdnas.records import ExploredState

Found = TypeVar("Found")

_MOST = 64

_Entries = OrderedDict[Hashable, tuple[int, object]]
_by_database: WeakKeyDictionary[Database, _Entries] = WeakKeyDictionary()
_lock = threading.Lock()
_working = tuple(threading.RLock() for _ in range(32))


def remembered(
    database: Database, session: Session, search_id: str, what: Hashable, find: Callable[[], Found]
) -> Found:
    """Return what was found before, or find it.

    Args:
        database: that of the session.
        session: sees one state of the database, so that the newest event tells which.
        search_id: the search.
        what: names what is looked for, with every parameter that it depends on.
        find: reads in the same session and depends on nothing that changes without an event.
    """
    event, key = explored.newest_event(session, search_id), (search_id, what)
    with _working[hash(search_id) % len(_working)]:  # others who ask for the same wait for it
        known = _known(database, key)
        if known is not None and known[0] == event:
            return cast(Found, known[1])
        found = find()
        if known is None or known[0] < event:
            _keep(database, key, event, found)
        return found


def _known(database: Database, key: Hashable) -> tuple[int, object] | None:
    with _lock:
        entries = _by_database.setdefault(database, OrderedDict())
        if key in entries:
            entries.move_to_end(key)
        return entries.get(key)


def _keep(database: Database, key: Hashable, event: int, found: object) -> None:
    with _lock:
        entries = _by_database[database]
        entries[key] = (event, found)
        entries.move_to_end(key)
        while len(entries) > _MOST:
            entries.popitem(last=False)


def explored_states(database: Database, session: Session, search_id: str) -> list[ExploredState]:
    """Return the states of a search that have a reward, as they are within the transaction."""
    return remembered(
        database,
        session,
        search_id,
        "states",
        lambda: explored.explored_states(session, search_id),
    )

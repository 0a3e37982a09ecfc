"""What was found out about a search is found once, and again after its next event."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from api.remembered import explored_states, remembered
from kdnas.db.engine import Database
from kdnas.db.repository import searches


def new_search(database: Database) -> str:
    with database.write() as session:
        return searches.create_search(session, {}).id


def test_found_once_until_something_happens(database: Database) -> None:
    search_id, count = new_search(database), iter(range(10))

    def ask(what: str) -> int:
        with database.read() as session:
            return remembered(database, session, search_id, what, lambda: next(count))

    assert [ask("a"), ask("a"), ask("b"), ask("a")] == [0, 0, 1, 0]
    with database.write() as session:
        searches.set_search_status(session, search_id, "running")
    assert [ask("a"), ask("a"), ask("b")] == [2, 2, 3]


def test_those_who_ask_at_once_wait_for_the_first(database: Database) -> None:
    search_id, found, everybody = new_search(database), [], threading.Barrier(4)

    def find() -> int:
        time.sleep(0.1)
        found.append(1)
        return len(found)

    def ask(_: int) -> int:
        everybody.wait()
        with database.read() as session:
            return remembered(
                database,
                session,
                search_id,
                "slow",
                lambda: find() + len(explored_states(database, session, search_id)),
            )

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [1, 1, 1, 1]


def test_an_older_view_does_not_replace_a_newer_one(database: Database) -> None:
    search_id = new_search(database)
    with database.read() as old:
        searches.get_search(old, search_id)  # its view begins here
        with database.write() as session:
            searches.set_search_status(session, search_id, "running")
        with database.read() as new:
            assert remembered(database, new, search_id, "x", lambda: "new") == "new"
        assert remembered(database, old, search_id, "x", lambda: "old") == "old"
    with database.read() as session:
        assert remembered(database, session, search_id, "x", lambda: "again") == "new"

"""What was found out about a search is found once, and again after its next event."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.searches.remembered import explored_states, remembered
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import jobs, searches
from kdnas.records import NewCandidate, Proposal
from kdnas.settings import Settings
from kdnas.testing.journal_contract import CONTEXT, KNOWN, LOSSES, result_of

PAGES = (
    "searches",
    "searches/{id}",
    "searches/{id}/episodes",
    "searches/{id}/candidates",
    "searches/{id}/candidates?status=running&sort=-created_at",
    "searches/{id}/pareto",
    "searches/{id}/ranking",
    "searches/{id}/points",
    "searches/{id}/coverage",
    "searches/{id}/analysis",
)


def new_search(database: Database, **spec: str) -> str:
    with database.write() as session:
        return searches.create_search(session, spec).id


def test_found_once_until_something_happens(database: Database) -> None:
    search_id, count = new_search(database), iter(range(10))

    def ask(what: str) -> int:
        with database.read() as session:
            return remembered(session, search_id, what, lambda: next(count))

    assert [ask("a"), ask("a"), ask("b"), ask("a")] == [0, 0, 1, 0]
    with database.write() as session:
        jobs.set_status(session, search_id, "running")
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
                session,
                search_id,
                "slow",
                lambda: find() + len(explored_states(session, search_id)),
            )

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [1, 1, 1, 1]


def test_an_older_view_does_not_replace_a_newer_one(database: Database) -> None:
    search_id = new_search(database)
    with database.read() as old:
        searches.get_search(old, search_id)  # its view begins here
        with database.write() as session:
            jobs.set_status(session, search_id, "running")
        with database.read() as new:
            assert remembered(new, search_id, "x", lambda: "new") == "new"
        assert remembered(old, search_id, "x", lambda: "old") == "old"
    with database.read() as session:
        assert remembered(session, search_id, "x", lambda: "again") == "new"


def life(journal: DatabaseJournal, search_id: str) -> Iterator[None]:
    """All that can happen to a search's candidates, step by step."""
    journal.set_status(search_id, "running")
    yield
    for number, sizes in enumerate(((3, 4, 6, 3), (4, 6, 4, 3)), 1):
        new = [
            NewCandidate(
                Proposal(size, "random"), Architecture(size, 2, 288, 384), size, size / 12, 2.0
            )
            for size in sizes
        ]
        proposed = journal.begin_episode(search_id, number, 0.5, None, None, new).candidates
        yield
        journal.start_attempt([candidate.id for candidate in proposed[:3]], "worker")
        yield
        journal.interrupt_attempts([proposed[0].id], "lost")
        yield
        journal.start_attempt([proposed[0].id], "worker")
        yield
        for candidate, losses in zip(proposed[:3], (LOSSES, None, LOSSES), strict=True):
            result = result_of(candidate.id, candidate.architecture, losses)
            reward = number / candidate.architecture.layers if losses else None
            journal.finish_candidate(candidate.id, CONTEXT, result, reward, None)
            yield
        journal.reuse_losses(proposed[3].id, KNOWN, 0.5, None)
        yield
        journal.end_episode(search_id, number, 0.1, b"")
        yield
    journal.set_status(search_id, "failed", "no more room")
    yield


@pytest.mark.parametrize("goal", ["reward", "front"])
def test_nobody_sees_less_than_a_newcomer(
    client: TestClient, database: Database, settings: Settings, goal: str
) -> None:
    search_id = new_search(database, goal=goal)
    pages = [f"/api/v1/{page.format(id=search_id)}" for page in PAGES]
    answers: list[list[Any]] = []
    for _ in life(DatabaseJournal(database), search_id):
        answers.append([client.get(page).json() for page in pages])
        with Database(database.url) as nothing_remembered:
            app = create_app(settings, nothing_remembered, coordinator=False)
            newcomer = TestClient(app, base_url=str(client.base_url))
            assert [newcomer.get(page).json() for page in pages] == answers[-1]
        assert [client.get(page).json() for page in pages] == answers[-1]
    assert all(before != after for before, after in itertools.pairwise(answers))

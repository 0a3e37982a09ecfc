"""The journal in the database keeps the contract on both dialects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from kdnas.db.engine import Database, Session
from kdnas.db.journal import DatabaseJournal
from kdnas.db.models import Attempt, Candidate, DistillationLoss, Search
from kdnas.db.models import MiniKDContext as StoredContext
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import events, jobs, searches
from kdnas.records import CurvePoint, MiniKDContext
from kdnas.search.protocols import Journal
from kdnas.testing.journal_contract import (
    CONTEXT,
    KNOWN,
    LOSSES,
    SMALL,
    JournalContract,
    new_candidates,
    result_of,
)

MEANING = MiniKDContext(
    teacher="t1",
    corpus="c1",
    objective={"name": "hs", "mapping": {"1": [2, 4]}},
    student={"init": "warm"},
    proxy={"seed": 3, "steps": 20},
    dtype="float32",
    engine_version="1",
)


@pytest.fixture
def journal(database: Database) -> DatabaseJournal:
    return DatabaseJournal(database)


@pytest.fixture
def search_id(database: Database) -> str:
    with database.write() as session:
        return searches.create_search(session, {"seed": 1}).id


def stored_losses(session: Session, context: str) -> list[DistillationLoss]:
    query = select(DistillationLoss).where(DistillationLoss.context == context)
    return list(session.scalars(query.order_by(DistillationLoss.repeat)))


class TestDatabaseJournal(JournalContract):
    """Runs the contract."""


def test_it_is_a_journal(journal: DatabaseJournal) -> None:
    typed: Journal = journal
    assert typed is journal


def test_losses_are_kept_with_curve_and_repeat(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    context = journal.save_context(MEANING)
    assert context == MEANING.fingerprint
    twice = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates([SMALL, SMALL])
    ).candidates
    for candidate in twice:
        journal.finish_candidate(candidate.id, context, result_of(candidate.id, SMALL), 0.1, None)
    journal.save_context(MEANING)
    with database.read() as session:
        rows = stored_losses(session, context)
        meaning = session.get_one(StoredContext, context).content
        assert [row.repeat for row in rows] == [1, 2]
        assert {row.architecture for row in rows} == {str(SMALL)}
        assert rows[0].losses == LOSSES
        assert tuple(CurvePoint(*p) for p in rows[0].curve) == result_of("", SMALL).curve
        assert (rows[0].num_steps, rows[0].train_seconds) == (20, 1.25)
        assert rows[0].loss_start == KNOWN.loss_start
    assert meaning is not None
    assert meaning["objective"] == {"name": "hs", "mapping": {"1": [2, 4]}}


def test_a_dead_drivers_attempts_are_closed(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    first, second = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates()
    ).candidates
    journal.start_attempt([first.id, second.id], "worker")
    journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.5, None)
    assert journal.close_open_attempts(search_id, "the driver died") == 1
    assert journal.close_open_attempts(search_id, "the driver died") == 0
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Attempt)) == 2
        assert session.get_one(Candidate, second.id).status == "proposed"


def test_every_step_leaves_an_event(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    journal.set_status(search_id, "running")
    first, second = journal.begin_episode(
        search_id, 1, 0.5, None, None, new_candidates()
    ).candidates
    journal.start_attempt([first.id, second.id], "worker")
    journal.interrupt_attempts([second.id], "worker died")
    journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.5, None)
    journal.end_episode(search_id, 1, None, b"state")
    with database.read() as session:
        everything = events.events_since(session)
        later = events.events_since(session, everything[3].id, job_id=search_id)
        assert events.last_event_id(session) == everything[-1].id
    assert [event.type for event in everything] == [
        "search_created",
        "search_status",
        "episode_started",
        "attempts_started",
        "attempts_interrupted",
        "candidate_finished",
        "episode_finished",
    ]
    assert later == everything[4:]
    assert everything[5].payload["reward"] == 0.5
    assert everything[3].payload == {"candidates": [first.id, second.id], "worker": "worker"}


def test_deleting_a_search_leaves_the_losses(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    first, _ = journal.begin_episode(search_id, 1, None, None, None, new_candidates()).candidates
    journal.start_attempt([first.id], "worker")
    journal.finish_candidate(first.id, CONTEXT, result_of(first.id, SMALL), 0.5, None)
    journal.end_episode(search_id, 1, None, b"state")
    with database.write() as session:
        jobs.delete_job(session, search_id)
    assert journal.known_losses(CONTEXT, [SMALL]) == {str(SMALL): KNOWN}
    with database.read() as session:
        assert [event.type for event in events.events_since(session)] == ["search_deleted"]


def test_searches_that_end_the_same_state_at_once_get_repeats_of_their_own(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    num_same = 6
    same = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates([SMALL] * num_same)
    ).candidates
    with ThreadPoolExecutor(num_same) as pool:
        list(
            pool.map(
                lambda c: journal.finish_candidate(
                    c.id, CONTEXT, result_of(c.id, SMALL), 0.5, None
                ),
                same,
            )
        )
    with database.read() as session:
        rows = stored_losses(session, CONTEXT)
        assert [row.repeat for row in rows] == list(range(1, num_same + 1))


def test_results_and_status_changes_do_not_block_each_other(
    journal: DatabaseJournal, database: Database, search_id: str
) -> None:
    """Both lock rows, then the numbering of events; neither may wait for the other in turn."""
    many = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates([SMALL] * 30)
    ).candidates
    owner = LeaseOwner.of_this_process("cli")

    def change_status() -> None:
        for i in range(30):
            journal.set_status(search_id, "paused" if i % 2 else "running")
            with database.write() as session:
                leases.acquire(session, Search, search_id, owner, 60)

    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(change_status)
        for candidate in many:
            journal.start_attempt([candidate.id], "worker")
            journal.reuse_losses(candidate.id, KNOWN, 0.5, None)
        changes.result()

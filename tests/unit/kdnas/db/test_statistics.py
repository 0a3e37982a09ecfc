"""The operator's figures against what was just done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import evaluations, searches, statistics
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.db.repository.statistics import Statistics, read_statistics
from kdnas.records import Proposal
from kdnas.search.protocols import NewCandidate
from kdnas.testing.journal_contract import CONTEXT, KNOWN, LOSSES, result_of

STATE = Architecture.parse("3,4,192,384,gelu")


def read(database: Database) -> Statistics:
    with database.read() as session:
        return read_statistics(session)


def test_what_happens_is_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = DatabaseJournal(database)
    with database.write() as session:
        search_id = searches.create_search(session, {}).id
        pairs = [NewEvaluation("glue", "RTE", seed, {}) for seed in range(2)]
        evaluations.create_evaluations(session, pairs, model="m")
    new = [NewCandidate(Proposal(i, "random"), STATE, 1.0, 0.5, 2.0) for i in range(4)]
    first, second, third, fourth = journal.begin_episode(
        search_id, 1, None, None, None, new
    ).candidates
    journal.start_attempt([first.id, second.id, third.id], "worker")
    during = read(database)
    assert (during.num_in_training, during.num_workers) == (3, 1)
    assert (during.jobs["evaluation"]["queued"], during.jobs["evaluation"]["running"]) == (2, 0)
    assert during.jobs["search"]["queued"] == 1
    assert set(during.jobs) == {"search", "evaluation"}
    assert during.num_trained_last_hour == 0
    journal.finish_candidate(first.id, CONTEXT, result_of(first.id, STATE, LOSSES), 0.5, None)
    journal.finish_candidate(second.id, CONTEXT, result_of(second.id, STATE, None), None, None)
    journal.interrupt_attempts([third.id], "lost")
    journal.reuse_losses(fourth.id, KNOWN, 0.5, None)
    after = read(database)
    ended = {"succeeded": 2, "failed": 1, "stopped": 0}
    assert after.candidates == {"proposed": 1, "running": 0, **ended}
    assert (after.num_in_training, after.num_workers, after.num_reused) == (0, 0, 1)
    assert after.num_trained_last_hour == 1
    later = statistics.utc_now() + timedelta(minutes=61)
    monkeypatch.setattr(statistics, "utc_now", lambda: later)
    assert read(database).num_trained_last_hour == 0

"""The table of states says the same as the candidates, whatever happens to them."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.exploration import explored
from kdnas.db.journal import DatabaseJournal
from kdnas.db.models import Candidate, SearchState
from kdnas.db.repository import jobs, searches
from kdnas.records import CANDIDATE_ENDS, Losses, Proposal, Reading
from kdnas.search.protocols import NewCandidate
from kdnas.search.summary import summarise, summarise_states
from kdnas.testing.journal_contract import CONTEXT, KNOWN, LOSSES, result_of
from kdnas.testing.many_candidates import add_many_candidates

STATES = [Architecture(layers, 2, 288, 384) for layers in (3, 4, 6)]


def expected(database: Database, search_id: str) -> dict[int, dict[str, Any]]:
    """The states as they follow from the candidates, counted one by one."""
    by_state: dict[int, list[Candidate]] = defaultdict(list)
    with database.read() as session:
        for row in session.scalars(
            select(Candidate)
            .where(Candidate.search_id == search_id)
            .order_by(Candidate.episode, Candidate.position)
        ):
            by_state[row.state_index].append(row)
        return {
            state: {
                "architecture": rows[0].architecture,
                "num_candidates": len(rows),
                "num_finished": sum(row.status in CANDIDATE_ENDS for row in rows),
                "num_attempts": sum(row.num_attempts for row in rows),
                "trained": any(row.status == "succeeded" and not row.reused for row in rows),
                "failed": any(row.status == "failed" for row in rows),
                "stopped": any(row.status == "stopped" for row in rows),
                "candidate_id": next((row.id for row in rows if row.reward is not None), None),
            }
            for state, rows in by_state.items()
        }


def stored(database: Database, search_id: str) -> dict[int, dict[str, Any]]:
    with database.read() as session:
        rows = session.scalars(select(SearchState).where(SearchState.search_id == search_id)).all()
        return {
            row.state_index: {
                name: getattr(row, name)
                for name in (
                    "architecture",
                    "num_candidates",
                    "num_finished",
                    "num_attempts",
                    "trained",
                    "failed",
                    "stopped",
                    "candidate_id",
                )
            }
            for row in rows
        }


def test_states_follow_a_search(database: Database) -> None:
    journal, generator = DatabaseJournal(database), random.Random(3)
    with database.write() as session:
        search_id = searches.create_search(session, {}).id
    for number in (1, 2, 3):
        proposed = [generator.randrange(3) for _ in range(4)]
        new = [
            NewCandidate(Proposal(state, "random"), STATES[state], 1.0, 0.5, 2.0)
            for state in proposed
        ]
        episode = journal.begin_episode(search_id, number, None, None, None, new)
        assert stored(database, search_id) == expected(database, search_id)
        shuffled = list(episode.candidates)
        generator.shuffle(shuffled)  # results come in any order
        journal.start_attempt([c.id for c in shuffled[:3]], "worker")
        journal.interrupt_attempts([shuffled[0].id], "lost")
        journal.start_attempt([shuffled[0].id], "worker")
        fates: list[Losses | None] = [LOSSES, None, LOSSES]
        for candidate, losses in zip(shuffled[:3], fates, strict=True):
            result = result_of(candidate.id, candidate.architecture, losses)
            journal.finish_candidate(
                candidate.id, CONTEXT, result, 0.5 if losses else None, note=None
            )
            assert stored(database, search_id) == expected(database, search_id)
        journal.reuse_losses(shuffled[3].id, KNOWN, 0.5, None)
        assert stored(database, search_id) == expected(database, search_id)
        journal.end_episode(search_id, number, None, b"")
    with database.write() as session:
        jobs.delete_job(session, search_id)
    assert stored(database, search_id) == {}


def test_many_candidates_agree_with_their_states(database: Database) -> None:
    search_id = add_many_candidates(database, 2_000)
    assert stored(database, search_id) == expected(database, search_id)
    with database.read() as session:
        assert len(DatabaseJournal(database).episodes(search_id)) == 100
        assert searches.get_search(session, "many").status == "succeeded"


def test_a_summary_of_the_states_is_that_of_all_candidates(database: Database) -> None:
    search_id = add_many_candidates(database, 1_000)
    with database.read() as session:
        record = searches.get_search(session, search_id)
        whole = summarise(record, DatabaseJournal(database).episodes(search_id))
        counts = explored.state_counts(session, search_id)
        states = explored.explored_states(session, search_id)
    assert summarise_states(record, counts, states) == whole
    short = summarise_states(record, counts, states, num_best=3)
    assert short == {**whole, "best": whole["best"][:3]}


def test_a_summary_counts_what_was_stopped(database: Database) -> None:
    journal = DatabaseJournal(database)
    with database.write() as session:
        search_id = searches.create_search(session, {}).id
    new = [
        NewCandidate(Proposal(state, "random"), STATES[state], 1.0, 0.5, 2.0) for state in range(3)
    ]
    candidates = journal.begin_episode(search_id, 1, None, None, None, new).candidates
    journal.start_attempt([c.id for c in candidates], "worker")
    for candidate, steps in zip(candidates, (20, 5, 8), strict=True):
        result = result_of(candidate.id, candidate.architecture)
        if steps < 20:
            reading = (Reading(steps, LOSSES),)
            result = replace(result, losses=None, steps=steps, readings=reading)
        journal.finish_candidate(candidate.id, CONTEXT, result, 0.5 if steps == 20 else None, None)
        assert stored(database, search_id) == expected(database, search_id)
    journal.end_episode(search_id, 1, None, b"")
    with database.read() as session:
        record = searches.get_search(session, search_id)
        counts = explored.state_counts(session, search_id)
        states = explored.explored_states(session, search_id)
    assert (counts.explored, counts.stopped, counts.trained) == (3, 2, 1)
    assert counts.steps_saved == pytest.approx(1 - 33 / 60)
    whole = summarise(record, journal.episodes(search_id))
    assert summarise_states(record, counts, states) == whole

"""The search loop's journal in the database: one transaction a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.exploration import candidates as repository
from kdnas.db.exploration import losses as loss_table
from kdnas.db.repository import jobs, searches
from kdnas.records import (
    Candidate,
    Episode,
    KnownLosses,
    MiniKDContext,
    MiniKDResult,
    SearchRecord,
    SearchStatus,
)


class DatabaseJournal:
    """Implements ``kdnas.search.protocols.Journal``; safe to share between threads.

    Every method raises NotFoundError for an id that is not there, ConflictError where the state
    forbids the call, and DatabaseError if the database is out of reach or full; then nothing of
    the call was written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def episodes(self, search_id: str) -> list[Episode]:
        """All episodes in order, with their candidates in the order of their position."""
        with self._database.read() as session:
            return repository.list_episodes(session, search_id)

    def controller_state(self, search_id: str) -> bytes | None:
        """The strategy's state after the last finished episode."""
        with self._database.read() as session:
            return repository.controller_state(session, search_id)

    def begin_episode(
        self,
        search_id: str,
        number: int,
        epsilon: float | None,
        global_best: int | None,
        previous_best: int | None,
        candidates: Sequence[repository.NewCandidate],
    ) -> Episode:
        """Write an episode and its candidates before anything is trained."""
        with self._database.write() as session:
            return repository.begin_episode(
                session, search_id, number, epsilon, global_best, previous_best, candidates
            )

    def save_context(self, context: MiniKDContext) -> str:
        """Write down what a context's fingerprint means; returns the fingerprint."""
        with self._database.write() as session:
            return loss_table.save_context(session, context)

    def known_losses(
        self, context: str, architectures: Sequence[Architecture]
    ) -> Mapping[str, KnownLosses]:
        """Look up losses by context fingerprint; architecture text → those of the first repeat."""
        with self._database.read() as session:
            return loss_table.known_losses(session, context, architectures)

    def start_attempt(self, candidate_ids: Sequence[str], worker: str) -> None:
        """Note that a worker began to train these candidates."""
        with self._database.write() as session:
            repository.start_attempts(session, candidate_ids, worker)

    def interrupt_attempts(self, candidate_ids: Sequence[str], reason: str) -> None:
        """Close the open attempts of these candidates with a reason; they are proposed again."""
        with self._database.write() as session:
            repository.interrupt_attempts(session, candidate_ids, reason)

    def close_open_attempts(self, search_id: str, reason: str) -> int:
        """Interrupt what a dead driver of the search left open; returns how many that were."""
        with self._database.write() as session:
            return repository.close_open_attempts(session, search_id, reason)

    def finish_candidate(
        self,
        candidate_id: str,
        context: str,
        result: MiniKDResult,
        reward: float | None,
        note: str | None,
    ) -> Candidate:
        """Store a result as it comes: losses in the look-up table, the candidate, its attempt."""
        with self._database.write() as session:
            return repository.finish_candidate(session, candidate_id, context, result, reward, note)

    def reuse_losses(
        self,
        candidate_id: str,
        known: KnownLosses,
        reward: float | None,
        note: str | None,
        error: str | None = None,
    ) -> Candidate:
        """Finish a candidate with losses that were known before; with an error it has failed."""
        with self._database.write() as session:
            return repository.reuse_losses(session, candidate_id, known, reward, note, error)

    def end_episode(
        self,
        search_id: str,
        number: int,
        controller_loss: float | None,
        controller_state: bytes,
    ) -> Episode:
        """Close an episode together with the strategy's new state and an event."""
        with self._database.write() as session:
            return repository.end_episode(
                session, search_id, number, controller_loss, controller_state
            )

    def get_search(self, search_id: str) -> SearchRecord:
        """Read a search by its id or name."""
        with self._database.read() as session:
            return searches.get_search(session, search_id)

    def set_status(
        self,
        search_id: str,
        status: SearchStatus,
        error: str | None = None,
        among: Sequence[SearchStatus] | None = None,
    ) -> SearchStatus:
        """Change a search's status, with an event, if it is one of ``among``; return what it is."""
        with self._database.write() as session:
            row = jobs.locked_job(session, search_id)
            if among is None or row.status in among:
                jobs.change_status(session, row, status, error)
            return cast(SearchStatus, row.status)

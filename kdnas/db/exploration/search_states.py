"""The states that a search has proposed: written with its candidates, in the same transactions.

Row locks are taken after those of the candidates, as everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import update
from sqlalchemy.orm import Session

from kdnas.db.base import insert
from kdnas.db.models import Candidate, SearchState


def note_proposed(session: Session, search_id: str, candidates: Sequence[Candidate]) -> None:
    """Count new candidates under their states."""
    counts = Counter(row.state_index for row in candidates)
    architectures = {row.state_index: row.architecture for row in candidates}
    rows = [
        {
            "search_id": search_id,
            "state_index": state,
            "architecture": architectures[state],
            "num_candidates": count,
        }
        for state, count in sorted(counts.items())
    ]
    if rows:
        statement = insert(session, SearchState)
        more = SearchState.num_candidates + statement.excluded.num_candidates
        statement = statement.on_conflict_do_update(
            index_elements=["search_id", "state_index"], set_={"num_candidates": more}
        )
        session.execute(statement, rows)


def note_attempts(session: Session, candidates: Iterable[Candidate]) -> None:
    """Count an attempt of each candidate under its state."""
    counts = Counter((row.search_id, row.state_index) for row in candidates)
    for (search_id, state), count in sorted(counts.items()):
        session.execute(
            update(SearchState)
            .where(SearchState.search_id == search_id, SearchState.state_index == state)
            .values(num_attempts=SearchState.num_attempts + count)
        )


def note_finished(session: Session, candidate: Candidate) -> None:
    """Note how a candidate ended; the first of a state with a reward stands for the state."""
    state = session.get_one(
        SearchState,
        (candidate.search_id, candidate.state_index),
        with_for_update=True,
        populate_existing=True,
    )
    state.num_finished += 1
    if candidate.status == "failed":
        state.failed = True
        return
    if candidate.status == "stopped":
        state.stopped = True
        return
    state.trained = state.trained or not candidate.reused
    if candidate.reward is None:
        return
    first = state.candidate_id and session.get_one(Candidate, state.candidate_id)
    if not first or (candidate.episode, candidate.position) < (first.episode, first.position):
        state.candidate_id = candidate.id

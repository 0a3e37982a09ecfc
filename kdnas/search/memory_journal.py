"""A journal in memory that behaves like the one in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal

from kdnas.architecture import Architecture
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import (
    CANDIDATE_ENDS,
    Candidate,
    Episode,
    KnownLosses,
    MiniKDResult,
    NewCandidate,
    SearchRecord,
    SearchStatus,
)

_TERMINAL: tuple[SearchStatus, ...] = ("succeeded", "failed", "cancelled")
_Ended = Literal["succeeded", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class MemoryAttempt:
    """One training of a candidate; ``outcome`` is None while it runs."""

    candidate_id: str
    worker: str
    outcome: _Ended | Literal["interrupted"] | None = None
    error: str | None = None


class MemoryJournal:
    """Implements :class:`kdnas.search.protocols.Journal` with dictionaries.

    Attributes:
        attempts: every training started, in order.
        events: type and payload of everything that happened, in order.
    """

    def __init__(self) -> None:
        self.attempts: list[MemoryAttempt] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._searches: dict[str, SearchRecord] = {}
        self._episodes: dict[str, list[Episode]] = {}
        self._candidates: dict[str, Candidate] = {}
        self._states: dict[str, bytes] = {}
        self._losses: dict[tuple[str, str], list[KnownLosses]] = {}
        self._ids = count(1)

    def create_search(
        self,
        spec: Mapping[str, Any],
        name: str | None = None,
        owner_kind: Literal["cli", "service"] = "cli",
    ) -> SearchRecord:
        """Add a queued search."""
        search_id = f"search-{next(self._ids)}"
        record = SearchRecord(
            id=search_id,
            name=name or search_id,
            status="queued",
            spec=dict(spec),
            owner_kind=owner_kind,
            created_at=datetime.now(UTC),
        )
        self._searches[search_id] = record
        self._episodes[search_id] = []
        return record

    def get_search(self, search_id: str) -> SearchRecord:
        """Read a search by its id."""
        if search_id not in self._searches:
            raise NotFoundError(f"there is no search {search_id!r}")
        return self._searches[search_id]

    def set_status(
        self,
        search_id: str,
        status: SearchStatus,
        error: str | None = None,
        among: Sequence[SearchStatus] | None = None,
    ) -> SearchStatus:
        """Change a search's status, with an event, if it is one of ``among``; return what it is."""
        search, now = self.get_search(search_id), datetime.now(UTC)
        if among is not None and search.status not in among:
            return search.status
        started_at = now if status == "running" and not search.started_at else search.started_at
        self._searches[search_id] = replace(
            search,
            status=status,
            error=error,
            started_at=started_at,
            finished_at=now if status in _TERMINAL else None,
        )
        self.events.append(("search_status", {"status": status, "error": error}))
        return status

    def episodes(self, search_id: str) -> list[Episode]:
        """All episodes in order, with their candidates in the order of their position."""
        self.get_search(search_id)
        return [self._with_candidates(episode) for episode in self._episodes[search_id]]

    def controller_state(self, search_id: str) -> bytes | None:
        """The strategy's state after the last finished episode."""
        self.get_search(search_id)
        return self._states.get(search_id)

    def begin_episode(
        self,
        search_id: str,
        number: int,
        epsilon: float | None,
        global_best: int | None,
        previous_best: int | None,
        candidates: Sequence[NewCandidate],
    ) -> Episode:
        """Write an episode and its candidates before anything is trained."""
        self.get_search(search_id)
        past = self._episodes[search_id]
        if number != len(past) + 1 or not all(episode.finished for episode in past):
            raise ConflictError(
                f"episode {number} of search {search_id} cannot begin: it has {len(past)} episodes"
            )
        episode = Episode(
            search_id=search_id,
            number=number,
            epsilon=epsilon,
            finished=False,
            global_best=global_best,
            previous_best=previous_best,
            started_at=datetime.now(UTC),
        )
        past.append(episode)
        for position, new in enumerate(candidates):
            candidate_id = f"candidate-{next(self._ids)}"
            self._candidates[candidate_id] = Candidate(
                id=candidate_id,
                search_id=search_id,
                episode=number,
                position=position,
                index=new.proposal.index,
                architecture=new.architecture,
                source=new.proposal.source,
                predicted_reward=new.proposal.predicted_reward,
                status="proposed",
                latency_ms=new.latency_ms,
                latency_ratio=new.latency_ratio,
                params_millions=new.params_millions,
            )
        self.events.append(("episode_started", {"episode": number}))
        return self._with_candidates(episode)

    def known_losses(
        self, context: str, architectures: Sequence[Architecture]
    ) -> Mapping[str, KnownLosses]:
        """Look up losses by context; architecture text → those of the first repeat."""
        texts = [str(architecture) for architecture in architectures]
        return {t: self._losses[context, t][0] for t in texts if (context, t) in self._losses}

    def start_attempt(self, candidate_ids: Sequence[str], worker: str) -> None:
        """Note that a worker began to train these candidates."""
        for candidate in [self._unfinished(candidate_id) for candidate_id in candidate_ids]:
            self._close_attempt(candidate.id, "interrupted", "another attempt began")
            self.attempts.append(MemoryAttempt(candidate.id, worker))
            self._candidates[candidate.id] = replace(
                candidate, status="running", num_attempts=candidate.num_attempts + 1
            )
        payload = {"candidates": list(candidate_ids), "worker": worker}
        self.events.append(("attempts_started", payload))

    def interrupt_attempts(self, candidate_ids: Sequence[str], reason: str) -> None:
        """Close the open attempts of these candidates with a reason; they are proposed again."""
        for candidate in [self._get(candidate_id) for candidate_id in candidate_ids]:
            if candidate.status == "running":
                self._close_attempt(candidate.id, "interrupted", reason)
                self._candidates[candidate.id] = replace(candidate, status="proposed")
        payload = {"candidates": list(candidate_ids), "reason": reason}
        self.events.append(("attempts_interrupted", payload))

    def finish_candidate(
        self,
        candidate_id: str,
        context: str,
        result: MiniKDResult,
        reward: float | None,
        note: str | None,
    ) -> Candidate:
        """Store a result as it comes: losses in the look-up table, the candidate, its attempt."""
        candidate = self._unfinished(candidate_id)
        status: _Ended = "stopped" if result.stopped else "failed"
        if result.succeeded:
            status = "succeeded"
        self._close_attempt(candidate_id, status, result.error)
        if result.losses is not None:
            key = (context, str(candidate.architecture))
            known = KnownLosses(result.losses, result.loss_start)
            self._losses.setdefault(key, []).append(known)
        return self._finish(
            replace(
                candidate,
                status=status,
                losses=result.losses,
                loss_start=result.loss_start,
                reward=reward,
                error=result.error,
                note=note,
                readings=result.readings,
                num_steps=result.steps,
            )
        )

    def reuse_losses(
        self,
        candidate_id: str,
        known: KnownLosses,
        reward: float | None,
        note: str | None,
        error: str | None = None,
    ) -> Candidate:
        """Finish a candidate with losses that were known before; with an error it has failed."""
        return self._finish(
            replace(
                self._unfinished(candidate_id),
                status="failed" if error else "succeeded",
                losses=known.losses,
                loss_start=known.loss_start,
                reward=reward,
                reused=True,
                error=error,
                note=note,
            )
        )

    def end_episode(
        self,
        search_id: str,
        number: int,
        controller_loss: float | None,
        controller_state: bytes,
    ) -> Episode:
        """Close an episode together with the strategy's new state and an event."""
        self.get_search(search_id)
        past = self._episodes[search_id]
        if not 1 <= number <= len(past):
            raise NotFoundError(f"search {search_id} has no episode {number}")
        if past[number - 1].finished:
            raise ConflictError(f"episode {number} of search {search_id} is already finished")
        past[number - 1] = replace(
            past[number - 1],
            finished=True,
            controller_loss=controller_loss,
            finished_at=datetime.now(UTC),
        )
        self._states[search_id] = controller_state
        self.events.append(("episode_finished", {"episode": number}))
        return self._with_candidates(past[number - 1])

    def _with_candidates(self, episode: Episode) -> Episode:
        mine = (
            c
            for c in self._candidates.values()
            if (c.search_id, c.episode) == (episode.search_id, episode.number)
        )
        return replace(episode, candidates=tuple(sorted(mine, key=lambda c: c.position)))

    def _get(self, candidate_id: str) -> Candidate:
        if candidate_id not in self._candidates:
            raise NotFoundError(f"there is no candidate {candidate_id!r}")
        return self._candidates[candidate_id]

    def _unfinished(self, candidate_id: str) -> Candidate:
        candidate = self._get(candidate_id)
        if candidate.status in CANDIDATE_ENDS:
            raise ConflictError(f"candidate {candidate_id} is done: {candidate.status}")
        return candidate

    def _close_attempt(
        self,
        candidate_id: str,
        outcome: _Ended | Literal["interrupted"],
        error: str | None,
    ) -> None:
        for i, attempt in enumerate(self.attempts):
            if attempt.candidate_id == candidate_id and attempt.outcome is None:
                self.attempts[i] = replace(attempt, outcome=outcome, error=error)

    def _finish(self, candidate: Candidate) -> Candidate:
        self._candidates[candidate.id] = candidate
        self.events.append(
            ("candidate_finished", {"candidate": candidate.id, "status": candidate.status})
        )
        return candidate

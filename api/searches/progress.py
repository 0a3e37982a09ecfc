"""How far a search is, told to its job: what it does at present, down to its students' steps."""

from __future__ import annotations

from typing import Final

from api.jobs.context import JobContext
from kdnas.records import AttemptInterrupted, AttemptStarted, GroupProgress
from kdnas.search.at_work import StudentsAtWork
from kdnas.search.progress import CandidateDone, EpisodeDone, EpisodeStarted, Progress

PARTS: Final = 100
"""Parts of a candidate in which the progress of a search is counted."""


class SearchProgress:
    """Listens to a search and writes down how much of it is done, in hundredths of a candidate.

    A candidate whose losses are looked up counts as trained: it is as much of the search.

    Args:
        context: of the search.
        episodes: that were asked for.
        candidates: of each episode.
        finished: candidates that have ended before this run.
    """

    def __init__(self, context: JobContext, episodes: int, candidates: int, finished: int) -> None:
        self._context, self._episodes = context, episodes
        self._total = episodes * candidates * PARTS
        self._finished, self._episode = finished, 0
        self._shares: dict[str, float | None] = {}  # None until a worker is heard of
        self._at_work = StudentsAtWork()
        context.trains(self._at_work, lambda: self._done, self._total)
        self._write()

    def __call__(self, event: Progress) -> None:
        """Take note of what happened, and tell of it unless that was done a moment ago."""
        if isinstance(event, AttemptStarted | GroupProgress | AttemptInterrupted):
            self._at_work.note(event)
        if isinstance(event, EpisodeStarted):
            self._episode = event.number
        elif isinstance(event, AttemptStarted):
            self._shares |= dict.fromkeys(event.candidate_ids)
            if all(share is None for share in self._shares.values()):
                self._tell("waiting for workers: they start, or there is no room yet")
        elif isinstance(event, GroupProgress):
            at_work = [one for one in event.candidate_ids if one in self._shares]
            self._shares |= dict.fromkeys(at_work, event.step / event.total_steps)
            if event.waits:
                self._tell(event.waits)
                return
            if self._at_work.num_training and self._context.should_stop():
                self._context.ending(self._at_work, self._done, self._total)
                return
            students = f"{len(at_work)} student{'' if len(at_work) == 1 else 's'}"
            self._tell(
                f"training in episode {self._episode} of {self._episodes}: {students} at step "
                f"{event.step} of {event.total_steps}"
            )
        elif isinstance(event, AttemptInterrupted):
            for candidate_id in event.candidate_ids:
                self._shares.pop(candidate_id, None)
        elif isinstance(event, CandidateDone):
            self._shares.pop(event.candidate.id, None)
            self._at_work.end(event.candidate.id)
            self._finished += 1
        elif isinstance(event, EpisodeDone):
            self._write()

    def _tell(self, text: str) -> None:
        self._context.working(text, self._done, self._total)

    def _write(self) -> None:
        self._context.progress(self._done, self._total)

    @property
    def _done(self) -> int:
        candidates = self._finished + sum(share or 0.0 for share in [*self._shares.values()])
        return min(self._total, round(PARTS * candidates))

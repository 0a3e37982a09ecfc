"""All that the work on a job may touch, and how it tells what it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import structlog

from kdnas.corpus.tokenized import CorpusProgress
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job
from kdnas.db.queue.transitions import StopWish
from kdnas.db.repository import jobs
from kdnas.db.repository.events import append_event, payloads_of
from kdnas.errors import ConflictError, KdnasError
from kdnas.latency.device_lock import training_lock
from kdnas.records import SearchStatus
from kdnas.search.at_work import StudentsAtWork
from kdnas.settings import Settings

StoppedStatus = Literal["paused", "running"]

PAUSING = "pausing"
"""Phase of work that is to stop, while trainings are let come to their end."""
PHASE_SECONDS = 1.0
"""So often at most an event says how far a phase is."""

log = structlog.get_logger("kdnas.jobs")


class StoppedError(Exception):
    """Work is broken off as it was asked to; nothing is wrong."""


class JobContext:
    """A job that this process works on.

    Attributes:
        id: of the job.
        kind: name of its kind.
        called: what it is called in a sentence.
        spec: its request as plain JSON, as far as it was resolved when work began.
        status: what it was when work began; nothing is to be done unless it is ``running``.
        settings: of this process.
        database: where it is stored.
        claimed: whether a coordinator does it, not the command line.
    """

    def __init__(
        self,
        job: Job,
        database: Database,
        settings: Settings,
        *,
        claimed: bool,
        is_lost: Callable[[], bool],
        wish: Callable[[], StopWish | None],
        should_stop: Callable[[], bool],
        at_once: Callable[[], bool],
        stopped_status: StoppedStatus,
    ) -> None:
        self.id, self.kind, self.called, self.spec = job.id, job.kind, job.called, job.spec
        self.status: SearchStatus | None = job.status
        self._worked_before = job.worked_seconds
        self.settings, self.database, self.claimed = settings, database, claimed
        self._is_lost, self._wish = is_lost, wish
        self._should_stop, self._at_once = should_stop, at_once
        self.stopped_status = stopped_status
        self._told, self._text = 0.0, ""
        self._trains: tuple[StudentsAtWork, Callable[[], int], int] | None = None

    def phase(self, text: str, share: float | None = None) -> None:
        """Say what this job does or waits for, and how much of that is done (0 to 1).

        It is stored with its beginning, so that everybody sees since when; the same one is told
        about once a second. What follows a colon in ``text`` may change within a phase.
        """
        what, now = text.split(":")[0], time.monotonic()
        if what == self._text and now - self._told < PHASE_SECONDS:
            return
        self._text, self._told = what, now
        payload = {"text": text, "share": None if share is None else round(share, 3)}

        def write(session: Session) -> None:
            jobs.note_phase(session, self.id, text)
            append_event(session, f"{self.kind}_preparing", payload, job_id=self.id)

        self.database.note(write)
        if self.claimed:  # a command says it on its screen, and leaves stdout for results
            log.info("preparing", **payload)

    def corpus(self, progress: CorpusProgress) -> None:
        """Say how far tokenising is; a corpus that was there already is not worth a word."""
        if progress.stage == "tokenizing":
            total = progress.bytes_total
            share = progress.bytes_read / total if total else None
            self.phase(f"tokenising the corpus: {progress.num_samples} sequences", share)

    def objective(self, what: str, done: int, total: int) -> None:
        """Say how far the fitting of a head or the trial of layers is, or what it waits for.

        Raises:
            StoppedError: it was to stop.
            ConflictError: see :meth:`should_stop`.
        """
        self.check()
        if total:
            self.phase(f"{what}: step {done} of {total}", done / total)
        else:
            self.phase(what)

    def latency(self, share: float, text: str) -> None:
        """Say how far the latency table is."""
        self.phase(f"latency table: {text}", share)

    def end_preparation(self, phase: str) -> None:
        """Say that work itself begins, and what it is: its pace tells the remaining time."""
        worked = self._worked_before
        self.database.transact(lambda s: jobs.end_preparation(s, self.id, phase, worked))

    def progress(self, done: int, total: int | None) -> None:
        """Write down how much of the whole is done, in the kind's own unit."""
        self.database.note(lambda session: jobs.note_progress(session, self.id, done, total))

    def working(self, text: str, done: int, total: int) -> None:
        """Say how far the work itself is, of which no event tells; as often as :meth:`phase`.

        Args:
            text: as for a phase.
            done: of the whole, in the kind's own unit.
            total: the whole.
        """
        what, now = text.split(":")[0], time.monotonic()
        if what == self._text and now - self._told < PHASE_SECONDS:
            return
        self._text, self._told = what, now

        def write(session: Session) -> None:
            jobs.note_phase(session, self.id, text)
            jobs.note_progress(session, self.id, done, total)

        self.database.note(write)

    def ending(self, at_work: StudentsAtWork, done: int, total: int) -> None:
        """Say which trainings are let come to their end before work stops; once a second.

        Args:
            at_work: they.
            done: of the whole, in the kind's own unit.
            total: the whole.
        """
        now = time.monotonic()
        if self._text == PAUSING and now - self._told < PHASE_SECONDS:
            return
        self._text, self._told = PAUSING, now
        text = f"{PAUSING}: {at_work}"
        self.database.note(lambda s: jobs.note_ending(s, self.id, text, done, total))

    def trains(self, at_work: StudentsAtWork, done: Callable[[], int], total: int) -> None:
        """Say whose trainings are let come to their end when this job is paused.

        From then on that is told, be it that nothing is heard of them for minutes, as while losses
        are read: who is silent is killed.

        Args:
            at_work: they, kept up to date.
            done: of the whole at that moment, in the kind's own unit.
            total: the whole.
        """
        self._trains = at_work, done, total

    def note_wish(self, wish: StopWish | None) -> None:
        """Take note of how this job is wanted to stop; called by who watches that."""
        if wish == "in good order" and self._trains is not None:
            at_work, done, total = self._trains
            if at_work.num_training:
                self.ending(at_work, done(), total)

    def event(self, type: str, payload: Mapping[str, Any]) -> None:
        """Tell that something happened; the kind's name stands before ``type``."""
        self.database.transact(lambda session: self.event_in(session, type, payload))

    def passing_event(self, type: str, payload: Mapping[str, Any]) -> None:
        """Tell what the next one tells anew; left out while the database does not answer."""
        self.database.note(lambda session: self.event_in(session, type, payload))

    def event_in(self, session: Session, type: str, payload: Mapping[str, Any]) -> None:
        """Tell it in a transaction that writes what has happened: both are there, or neither."""
        append_event(session, f"{self.kind}_{type}", payload, job_id=self.id)

    def warn(self, text: str) -> None:
        """Tell what the user should know; what was told before a restart is not told again."""
        if self.claimed:
            log.warning(text)
        kind, payload = f"{self.kind}_warning", {"text": text}

        def write(session: Session) -> None:
            if payload not in payloads_of(session, kind, self.id):
                append_event(session, kind, payload, job_id=self.id)

        self.database.transact(write)

    def should_stop(self) -> bool:
        """Whether to stop: on request, or because the job was paused or cancelled.

        Raises:
            ConflictError: another process has the lease now, and writes the status.
        """
        self.check_lease()
        return self._wish() is not None or self._should_stop()

    def at_once(self) -> bool:
        """Whether to stop although students are being trained, whose steps are lost by it."""
        return self._wish() == "at once" or self._at_once()

    @contextmanager
    def training(self, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Hold the machine for training; what is waited for is told, and stopping ends the wait.

        Args:
            on_wait: is told as well, once, in a sentence.

        Raises:
            StoppedError: it was to stop meanwhile.
            ConflictError: see :meth:`should_stop`.
        """

        def waits(text: str) -> None:
            self.phase(text)
            on_wait(text)

        with training_lock(on_wait=waits, check=self.check):
            yield

    def check_lease(self) -> None:
        """Break off if somebody else works on the job; called before a result is written.

        Raises:
            ConflictError: another process has the lease now.
        """
        if self._is_lost():
            raise ConflictError(f"another process took over {self.called}; this one has stopped")

    def check(self) -> None:
        """Break off if work is to stop; called between steps.

        Raises:
            StoppedError: it is.
            ConflictError: see :meth:`should_stop`.
        """
        if self.should_stop():
            raise StoppedError

    def rest(self) -> SearchStatus | None:
        """Write down that work was stopped, unless somebody has written a status himself."""
        if self.stopped_status == "paused":
            self._end("paused")
        return self.database.transact(lambda session: jobs.note_rest(session, self.id))

    def succeed(self) -> None:
        """Write down that work is done, unless somebody has written a status himself."""
        self.check_lease()
        self._end("succeeded")

    def fail(self, error: Exception) -> None:
        """Write down why work failed, unless somebody has written a status himself."""
        if not self._is_lost():
            self._end("failed", str(error) if isinstance(error, KdnasError) else repr(error))

    def _end(self, status: SearchStatus, error: str | None = None) -> None:
        def write(session: Session) -> None:
            row = jobs.locked_job(session, self.id)
            if row.status == "running":
                jobs.change_status(session, row, status, error)

        self.database.transact(write)

"""Following a job while others work on it: its events, its log."""

from __future__ import annotations

import time
from typing import Final

import typer

from api.http.schemas import EventShape
from api.logs.job_log import log_so_far
from kdnas.cli.screens.event_words import in_words
from kdnas.db.engine import Database, Session
from kdnas.db.models import FINAL_STATUSES, Job
from kdnas.db.queue import leases
from kdnas.db.records import EventRecord
from kdnas.db.repository import events, jobs
from kdnas.errors import NotFoundError
from kdnas.records import SearchStatus
from kdnas.settings import Settings

POLL_SECONDS: Final = 0.5
PAGE: Final = 500
LAST_WORDS: Final = 4
"""So often a log is read again that says nothing new, after its job is over."""


class EventLines:
    """Prints events of a job and its parts, a line each.

    Args:
        job_id: the job; its own events need no word of whose they are.
        as_json: print each as the service streams it.
    """

    def __init__(self, job_id: str, as_json: bool) -> None:
        self._job_id, self._as_json = job_id, as_json
        self._names: dict[str, str] = {}

    def print(self, event: EventRecord, session: Session) -> None:
        """Print one; what has no words is left out, but not of JSON."""
        if self._as_json:
            typer.echo(EventShape.model_validate(event).model_dump_json())
        elif (text := in_words(event)) is not None:
            about = self._about(event, session)
            typer.echo(f"{event.created_at:%Y-%m-%d %H:%M:%S}  {about}{text}")

    def _about(self, event: EventRecord, session: Session) -> str:
        """Which part of the job an event is about."""
        if event.job_id is None or event.job_id == self._job_id:
            return ""
        if "model" in event.payload:
            return f"{str(event.payload['model']).rpartition('/')[2]}: "
        if event.job_id not in self._names:
            self._names[event.job_id] = _called(session, event.job_id)
        called = self._names[event.job_id]
        return f"{called[0].upper()}{called[1:]}: "


def follow_events(
    database: Database, job_id: str, position: int, lines: EventLines
) -> SearchStatus | None:
    """Print events as they happen until a job is over.

    Args:
        database: to read from.
        job_id: the job.
        position: number of the last event that is not wanted.
        lines: prints them.

    Returns:
        How it ended; None if it was deleted.
    """
    while True:
        with database.read() as session:
            # Read before the events, so that the one of its end is among them.
            status = jobs.status_of(session, job_id)
            page = events.events_since(session, position, job_id=job_id, limit=PAGE)
            for event in page:
                lines.print(event, session)
                position = event.id
        if len(page) == PAGE:
            continue
        if status is None or status in FINAL_STATUSES:
            return status
        time.sleep(POLL_SECONDS)


def follow_log(database: Database, settings: Settings, job_id: str, tail: int) -> None:
    """Print the end of a job's log, and what comes after it until the job is over.

    Raises:
        NotFoundError: it has no log and will have none.
    """
    position, silent = None, 0
    while silent < LAST_WORDS:
        with database.read() as session:
            status = jobs.status_of(session, job_id)
            held = leases.holder(session, Job, job_id) is not None if status else False
        over = (status is None or status in FINAL_STATUSES) and not held
        log = log_so_far(settings, job_id, over)
        news = log.newest(tail) if position is None else log.after(position)
        if news:
            typer.echo(news, nl=False)
        position = log.end
        silent = silent + 1 if over and not news else 0
        time.sleep(POLL_SECONDS)


def _called(session: Session, job_id: str) -> str:
    try:
        return jobs.get_job(session, job_id).called
    except NotFoundError:  # deleted meanwhile
        return job_id

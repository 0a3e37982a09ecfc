"""All that nothing needs any more, found and removed; safe beside a service and beside itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from api.cleaning.artefacts import (
    dangling_notes,
    fetched_copies,
    remains,
    unneeded_artefacts,
)
from api.cleaning.job_files import files_in_store, files_of_jobs, left_of_removals
from api.cleaning.unneeded import Needs, Unneeded
from api.jobs.registry import kinds
from kdnas.db.base import utc_now
from kdnas.db.migrate import open_database
from kdnas.db.repository import references, retention
from kdnas.errors import StoreError
from kdnas.settings import Settings
from kdnas.store import Store


@dataclass(frozen=True, slots=True)
class Removed:
    """What came of a removal.

    Attributes:
        count: how many things are gone.
        num_bytes: what they took.
        problems: a sentence for each that could not be removed.
    """

    count: int
    num_bytes: int
    problems: Sequence[str]


def find_unneeded(
    settings: Settings, hours: float, also: Sequence[str] = (), keep_events_days: int | None = None
) -> list[Unneeded]:
    """Find what nothing needs any more; changes nothing.

    Args:
        settings: of this process.
        hours: what was used or changed within so many is left alone.
        also: URLs of other databases whose jobs use the same home or store; the file ``kdnas.db``
            of the home is asked in any case.
        keep_events_days: events of jobs that are over and older than these; None keeps all.

    Raises:
        DatabaseError: a database is out of reach, or of another revision.
        StoreError: the store is out of reach.
    """
    kinds()  # tables of packages, whose jobs refer to something as well
    since = time.time() - hours * 3600
    store = Store.from_settings(settings)
    # Before the jobs are asked: what is written later is newer than all that may go.
    needs = _needs(settings, also)
    found: list[Unneeded] = []
    if store.is_local:
        found += unneeded_artefacts(store, needs, since)
        found += dangling_notes(store, since)
    else:
        found += fetched_copies(store, since)
    found += files_of_jobs(settings, needs, since)
    found += files_in_store(settings, store, needs, since)
    found += remains(store)
    found += left_of_removals(settings)
    found += _rows(settings, keep_events_days)
    return found


def remove(unneeded: Sequence[Unneeded]) -> Removed:
    """Remove what was found, each thing unless it is needed after all; goes on after a failure.

    Raises:
        DatabaseError: the database is out of reach.
    """
    count = num_bytes = 0
    problems = []
    for one in unneeded:
        try:
            gone = one.remove()
        except StoreError as error:
            problems.append(str(error))
            continue
        count += gone
        num_bytes += one.num_bytes if gone else 0
    return Removed(count, num_bytes, problems)


def _needs(settings: Settings, also: Sequence[str]) -> Needs:
    words: set[str] = set()
    statuses: dict[str, str] = {}
    held: set[str] = set()
    with ExitStack() as stack:
        for url in _urls(settings, also):
            database = stack.enter_context(open_database(replace(settings, database_url=url)))
            with database.read() as session:
                words |= references.words_of_jobs(session)
                statuses |= references.statuses(session)
                held |= references.held_jobs(session)
    over = {job for job, status in statuses.items() if status in {"succeeded", "cancelled"}}
    return Needs(words, statuses.keys(), over - held)


def _urls(settings: Settings, also: Sequence[str]) -> list[str]:
    own = settings.home / "kdnas.db"
    of_home = [f"sqlite:///{own}"] if own.is_file() else []
    return list(dict.fromkeys([settings.database_url, *of_home, *also]))


def _rows(settings: Settings, keep_events_days: int | None) -> Iterator[Unneeded]:
    """Rows of this process's own database."""
    before = None if keep_events_days is None else utc_now() - timedelta(days=keep_events_days)
    with open_database(settings) as database, database.read() as session:
        num_answers = retention.num_old_answers(session)
        num_events = 0 if before is None else retention.num_old_events(session, before)
    if num_answers:
        yield Unneeded("answers", "of requests", 0, partial(_forget, settings), num_answers)
    if before is not None and num_events:

        def remove_events() -> int:
            with open_database(settings) as database:
                return retention.remove_old_events(database, before)

        yield Unneeded("events", "of jobs that are over", 0, remove_events, num_events)


def _forget(settings: Settings) -> int:
    with open_database(settings) as database, database.write() as session:
        return retention.remove_old_answers(session)

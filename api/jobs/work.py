"""What every run of a stored job has in common: its lease, its status, and the wish to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from api.jobs.context import JobContext, StoppedError, StoppedStatus
from api.jobs.lease import held_lease, watched
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import StopWish, stop_wish
from kdnas.db.repository import jobs
from kdnas.errors import ConflictError, DatabaseError, NotNowError, of_a_disk
from kdnas.records import SearchStatus
from kdnas.settings import Settings

OVER: Final = {"succeeded": "has succeeded", "cancelled": "has been cancelled"}
"""Statuses of a job that nobody goes on with, in words."""


def do_job(
    job_id: str,
    database: Database,
    settings: Settings,
    run: Callable[[JobContext], object],
    *,
    claim: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    at_once: Callable[[], bool] = lambda: False,
    stopped_status: StoppedStatus = "paused",
    clean_up: Callable[[str, Database, Settings], None] = lambda *_: None,
) -> SearchStatus:
    """Run a stored job, or go on with it where it was cut off.

    Args:
        job_id: of a job that is not over.
        database: where it is stored.
        settings: of this process.
        run: does the work; returns when it is done, raises StoppedError where it was to stop.
        claim: token of a coordinator's claim on it; None runs it for the command line.
        should_stop: whether this process wants to stop.
        at_once: whether it then wants to lose what is being trained.
        stopped_status: what the job is then: ``paused``, or ``running`` still, to be taken up.
        clean_up: removes what a job that is over would have gone on with.

    Returns:
        The status that it has now; another party may have written it.

    Raises:
        NotFoundError: no such job.
        ConflictError: another process works on it, or it is over.
        KdnasError: whatever kept it from going on; its status says so.
    """

    def refuse_over(session: Session) -> None:
        row = jobs.get_job(session, job_id)
        if row.status in OVER and claim is None:
            raise ConflictError(f"{row.called} {OVER[row.status]}; start a new one")

    database.ask(refuse_over)
    with at_work(
        database, settings, job_id, claim, should_stop, stopped_status, at_once
    ) as context:
        if context.status == "running":
            try:
                run(context)
            except StoppedError:
                context.rest()
            else:
                context.succeed()
        status = database.ask(lambda session: jobs.get_job(session, job_id).status)
        if status in OVER:
            clean_up(job_id, database, settings)
    return status


@contextmanager
def at_work(
    database: Database,
    settings: Settings,
    job_id: str,
    claim: str | None,
    should_stop: Callable[[], bool],
    stopped_status: StoppedStatus,
    at_once: Callable[[], bool] = lambda: False,
) -> Iterator[JobContext]:
    """Hold a job for the time of a ``with`` block and watch whether it is still wanted.

    Whatever is raised inside becomes the job's failure, except what says nothing about the work:
    a lost lease, a database out of reach, or, where a coordinator tries again later, a cluster
    that has no room at present or does not answer.

    Args:
        database: where it is stored.
        settings: of this process.
        job_id: the job.
        claim: token of a coordinator's claim, which has set the job running; None works for the
            command line, and sets it running here.
        should_stop: whether this process wants to stop.
        stopped_status: what the job is then: ``paused``, or ``running`` still, to be taken up.
        at_once: whether this process then wants to lose what is being trained.

    Raises:
        NotFoundError: no such job.
        ConflictError: another process works on it, or it was cancelled.
        StoreError: the work met a full disk.
    """
    owner = LeaseOwner.of_this_process("service" if claim else "cli", claim)
    with held_lease(database, Job, job_id, owner) as lost:
        if claim is None:
            _set_running(database, job_id)

        contexts: list[JobContext] = []

        def ask() -> StopWish | None:
            found = database.ask(lambda session: stop_wish(session, job_id))
            for context in contexts:
                context.note_wish(found)
            return found

        with watched(ask, None, f"watch-{job_id}") as wish:

            def take_up(session: Session) -> JobContext:
                return JobContext(
                    jobs.get_job(session, job_id),
                    database,
                    settings,
                    claimed=claim is not None,
                    is_lost=lost,
                    wish=wish,
                    should_stop=should_stop,
                    at_once=at_once,
                    stopped_status=stopped_status,
                )

            context = database.ask(take_up)
            contexts.append(context)
            try:
                yield context
            except (ConflictError, DatabaseError, StoppedError):
                raise
            except Exception as error:
                if claim is not None and isinstance(error, NotNowError):
                    raise
                told = of_a_disk(error, f"KDNAS_HOME ({settings.home})")
                context.fail(told or error)
                if told is None:
                    raise
                raise told from error


def _set_running(database: Database, job_id: str) -> None:
    def write(session: Session) -> None:
        row = jobs.locked_job(session, job_id)
        if row.status in OVER:
            raise ConflictError(f"{row.called} {OVER[row.status]} by now; start a new one")
        if row.status != "running":
            jobs.change_status(session, row, "running")

    database.transact(write, by="cli")

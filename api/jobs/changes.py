"""What somebody asks to be done to a job: change it, cancel it, delete it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from api.jobs.registry import kinds
from api.jobs.schemas import JobChange
from api.logs.job_log import JobLog
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.queue.transitions import apply_action
from kdnas.db.records import LeaseHolder
from kdnas.db.repository import jobs
from kdnas.errors import ConflictError, StoreError
from kdnas.settings import Settings

log = structlog.get_logger("kdnas.jobs")


def apply_change(session: Session, job_id: str, change: JobChange) -> None:
    """Do all that a change says, or nothing.

    Raises:
        ConflictError: the job's status forbids the action, or the name is taken.
    """
    noted = change.note is not None and jobs.set_note(session, job_id, change.note)
    labelled = change.labels is not None and jobs.set_labels(session, job_id, change.labels)
    hurried = change.priority is not None and jobs.set_priority(session, job_id, change.priority)
    if change.action is not None:
        apply_action(session, job_id, change.action)
    # Events are the last, since they keep others from writing theirs.
    if change.name is not None:
        jobs.rename(session, job_id, change.name)
    if noted:
        jobs.tell_note(session, job_id)
    if labelled:
        jobs.tell_labels(session, job_id)
    if hurried:
        jobs.tell_priority(session, job_id)


def cancel_job(
    job_id: str, database: Database, settings: Settings, by: str | None = None
) -> LeaseHolder | None:
    """Cancel a job and its children for good, and see to it that their checkpoints go.

    A process that works on one stops within seconds and removes them itself; where nobody does,
    they are removed here.

    Args:
        job_id: the job.
        database: where it is stored.
        settings: of the environment.
        by: who asks for it.

    Returns:
        Who worked on it at that moment, if anybody did.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: it has succeeded, or is cancelled already.
    """
    try:
        with database.write(by) as session:
            apply_action(session, job_id, "cancel")
    except ConflictError:
        _clean_up(job_id, database, settings)  # a kill may have left something
        raise
    return _clean_up(job_id, database, settings)


def _clean_up(job_id: str, database: Database, settings: Settings) -> LeaseHolder | None:
    """Clean up after what is over and held by nobody; return who holds the job itself."""
    with database.read() as session:
        rows = [jobs.get_job(session, job_id), *jobs.children(session, job_id)]
        over = [row for row in rows if row.status in {"succeeded", "cancelled"}]
        left = [row for row in over if leases.holder(session, Job, row.id) is None]
        removals = [_leftovers(row, settings) for row in left]
        holder = leases.holder(session, Job, job_id)
    for remove in removals:
        remove()
    return holder


def _leftovers(job: Job, settings: Settings) -> Callable[[], object]:
    """Return what removes that with which a job would have gone on."""
    kind = kinds().get(job.kind)
    if kind is None:
        said = "files may be left: no installed package brings the job's kind"
        return partial(log.warning, said, job=job.id, kind=job.kind)
    return kind.leftovers(job, settings)


def delete_job(
    job_id: str,
    database: Database,
    settings: Settings,
    *,
    with_standing: bool,
    by: str | None = None,
) -> str | None:
    """Delete a job with its events, checkpoints and log; what it asked for is kept.

    Args:
        job_id: the job.
        database: where it is stored.
        settings: of the environment.
        with_standing: whether to delete it although others stand on it.
        by: who asks for it.

    Returns:
        Why its log is still there, since the store was out of reach; None if it is gone.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: it is running, or others stand on it; says which.
    """
    with database.write(by) as session:
        remove = _leftovers(jobs.locked_job(session, job_id), settings)
        jobs.delete_job(session, job_id, with_standing=with_standing)
    remove()  # not before: until then somebody may have claimed it
    try:
        JobLog.of(settings, job_id).remove()
    except StoreError as error:  # the job is gone all the same
        return str(error)
    return None

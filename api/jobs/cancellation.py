"""Cancelling a job: at once, or by the process that works on it."""

from __future__ import annotations

from api.jobs.registry import kind_named
from kdnas.db.engine import Database
from kdnas.db.models import Job
from kdnas.db.records import LeaseHolder
from kdnas.db.repository import jobs, leases
from kdnas.db.repository.transitions import apply_action
from kdnas.errors import ConflictError
from kdnas.settings import Settings


def cancel_job(job_id: str, database: Database, settings: Settings) -> LeaseHolder | None:
    """Cancel a job and its children for good, and see to it that their checkpoints go.

    A process that works on one stops within seconds and removes them itself; where nobody does,
    they are removed here.

    Args:
        job_id: the job.
        database: where it is stored.
        settings: of the environment.

    Returns:
        Who worked on it at that moment, if anybody did.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: it has succeeded, or is cancelled already.
    """
    try:
        with database.write() as session:
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
        left = [(row.kind, row.id) for row in over if leases.holder(session, Job, row.id) is None]
        holder = leases.holder(session, Job, job_id)
    for kind, left_id in left:
        kind_named(kind).clean_up(left_id, database, settings)
    return holder

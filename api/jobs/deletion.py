"""Deleting a job: its rows, and what of it is elsewhere."""

from __future__ import annotations

from api.jobs.logs import remove_log
from kdnas.db.engine import Database
from kdnas.db.repository import jobs
from kdnas.errors import StoreError
from kdnas.settings import Settings


def delete_job(
    job_id: str, database: Database, settings: Settings, *, with_standing: bool
) -> str | None:
    """Delete a job with its events, what is its own, and its log; what it asked for is kept.

    Args:
        job_id: the job.
        database: where it is stored.
        settings: of the environment.
        with_standing: whether to delete it although others stand on it.

    Returns:
        Why its log is still there, since the store was out of reach; None if it is gone.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: it is running, or others stand on it; says which.
    """
    with database.write() as session:
        jobs.delete_job(session, job_id, with_standing=with_standing)
    try:
        remove_log(settings, job_id)
    except StoreError as error:  # the job is gone all the same
        return str(error)
    return None

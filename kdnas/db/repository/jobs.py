"""Jobs of every kind: find one, change its state, say what it does, name and label it, delete it.

:func:`change_status` is the one place that writes a status; whoever claims, pauses, resumes,
cancels, buries or finishes a job calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import FINAL_STATUSES, Job, JobLabel
from kdnas.db.repository import names
from kdnas.db.repository.events import ROW_LOCK, append_event
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchStatus

AnyJob = TypeVar("AnyJob", bound=Job)


@overload
def get_job(session: Session, reference: str) -> Job: ...
@overload
def get_job(session: Session, reference: str, table: type[AnyJob]) -> AnyJob: ...
def get_job(session: Session, reference: str, table: type[Job] = Job) -> Job:
    """Read a job of a kind by id or name, or one of any kind.

    Raises:
        NotFoundError: there is none; says which name is nearest.
        ConflictError: jobs of several kinds have the name.
    """
    return names.find_named(session, table, reference)


@overload
def locked_job(session: Session, job_id: str) -> Job: ...
@overload
def locked_job(session: Session, job_id: str, table: type[AnyJob]) -> AnyJob: ...
def locked_job(session: Session, job_id: str, table: type[Job] = Job) -> Job:
    """The row of a job, kept from other writers until the end of the transaction.

    Raises:
        NotFoundError: no such job.
    """
    row = session.get(table, job_id, with_for_update=ROW_LOCK, populate_existing=True)
    if row is None:
        raise NotFoundError(names.unknown(session, table, job_id))
    return row


def require_job(session: Session, job_id: str) -> None:
    """Raise NotFoundError unless there is a job with this id."""
    if status_of(session, job_id) is None:
        raise NotFoundError(names.unknown(session, Job, job_id))


def locked_children(session: Session, job_id: str) -> list[Job]:
    """The jobs that a job asked for, all of them locked, in the order of their ids."""
    query = select(Job).where(Job.parent_id == job_id).order_by(Job.id)
    locking = query.with_for_update(key_share=ROW_LOCK["key_share"])
    return list(session.scalars(locking.execution_options(populate_existing=True)))


def children(session: Session, job_id: str) -> list[Job]:
    """The jobs that a job asked for, in the order of their ids."""
    return list(session.scalars(select(Job).where(Job.parent_id == job_id).order_by(Job.id)))


def status_of(session: Session, job_id: str) -> SearchStatus | None:
    """Where a job stands; None if it is gone."""
    found = session.scalar(select(Job.status).where(Job.id == job_id))
    return cast(SearchStatus | None, found)


def set_status(
    session: Session,
    job_id: str,
    status: SearchStatus,
    error: str | None = None,
    *,
    expected: Collection[SearchStatus] | None = None,
) -> None:
    """Change the status of a job, as :func:`change_status` does.

    Args:
        session: of a write transaction.
        job_id: the job.
        status: the new status.
        error: why it failed.
        expected: change it only if the status is one of these.

    Raises:
        NotFoundError: no such job.
        ConflictError: its status is not among ``expected``.
    """
    row = locked_job(session, job_id)
    if expected is not None and row.status not in expected:
        raise ConflictError(
            f"{row.called} is {row.status}, so it cannot become {status}; that takes "
            f"{' or '.join(expected)}"
        )
    change_status(session, row, status, error)


def change_status(
    session: Session, row: Job, status: SearchStatus, error: str | None = None
) -> None:
    """Write a status with its times and an event, on a row that the caller has locked.

    The first start is kept as ``started_at``; ``finished_at`` belongs to final statuses only. What
    it did at last is forgotten, and the time since it was set running is added to what it worked.
    """
    now = utc_now()
    if row.status == "running" and row.phase_since is not None:
        row.worked_seconds += max(0.0, (now - row.phase_since).total_seconds())
    row.status, row.error = status, error
    row.phase, row.phase_since = None, now
    if status == "running" and row.started_at is None:
        row.started_at = now
    row.finished_at = now if status in FINAL_STATUSES else None
    payload = {**row.about, "status": status, "error": error}
    append_event(session, f"{row.kind}_status", payload, job_id=row.id)


def note_phase(session: Session, job_id: str, phase: str) -> bool:
    """Write down what a running job does or waits for; returns whether that is something new.

    What follows a colon says how far it is: it may change, and the phase has begun when it did.
    """
    row = locked_job(session, job_id)
    if row.phase == phase or row.status != "running":
        return False
    is_new = _what(row.phase) != _what(phase)
    if is_new:
        now = utc_now()
        if row.phase_since is not None:
            row.worked_seconds += max(0.0, (now - row.phase_since).total_seconds())
        row.phase_since = now
    row.phase = phase
    session.flush()
    return is_new


def _what(phase: str | None) -> str | None:
    return None if phase is None else phase.partition(":")[0]


def note_progress(session: Session, job_id: str, done: int, total: int | None) -> None:
    """Write down how far a job is, in its kind's own unit; no event tells of it."""
    row = locked_job(session, job_id)
    row.done, row.total = done, total
    session.flush()


def resolve(session: Session, job_id: str, resolved: Mapping[str, Any]) -> None:
    """Store a job's request with nothing left open, beside what was asked for.

    Raises:
        NotFoundError: no such job.
    """
    locked_job(session, job_id).resolved = dict(resolved)
    session.flush()


def rename(session: Session, job_id: str, name: str) -> None:
    """Give a job another name, with an event; links go by id and stay whole.

    Raises:
        NotFoundError: no such job.
        ConflictError: another job of its kind has the name.
    """
    row = locked_job(session, job_id)
    if row.name == name:
        return
    names.refuse_taken_name(session, type(row), name)
    row.name = name
    try:
        session.flush()
    except IntegrityError as error:  # between the question and the answer
        raise names.taken_meanwhile(type(row), name) from error
    append_event(session, f"{row.kind}_renamed", {**row.about, "name": name}, job_id=row.id)


def set_note(session: Session, job_id: str, note: str | None) -> None:
    """Write what a user wants to remember of a job; an empty text is none."""
    locked_job(session, job_id).note = note or None
    session.flush()


def set_labels(session: Session, job_id: str, labels: Sequence[str]) -> None:
    """Give a job these labels and no others, each once and in their order."""
    row = locked_job(session, job_id)
    row.labels = list(dict.fromkeys(labels))
    session.execute(delete(JobLabel).where(JobLabel.job_id == job_id))
    session.add_all(JobLabel(job_id=job_id, label=label) for label in row.labels)
    session.flush()


def refuse_deletion(session: Session, row: Job, *, with_standing: bool) -> None:
    """Raise ConflictError if a job is running, or if others stand on it; says which."""
    if row.status == "running":
        raise ConflictError(f"{row.called} is running; cancel it before deleting it")
    standing = row.standing_on(session)
    if standing and not with_standing:
        listed = ", ".join(other.called for other in standing[:3])
        more = f" and {len(standing) - 3} more" if len(standing) > 3 else ""
        raise ConflictError(
            f"{listed}{more} stand{'' if len(standing) > 1 else 's'} on {row.called}; delete it "
            "with force, and they are kept without it"
        )


def delete_job(session: Session, job_id: str, *, with_standing: bool = True) -> None:
    """Delete a job with its events and all that is its own; what it asked for is kept.

    Children that are not over are cancelled first, since nobody waits for them any more.

    Args:
        session: of a write transaction.
        job_id: the job.
        with_standing: whether to delete it although others stand on it; those are kept, and go on
            without it.

    Raises:
        NotFoundError: no such job.
        ConflictError: it is running, or others stand on it; says which.
    """
    row = locked_job(session, job_id)
    refuse_deletion(session, row, with_standing=with_standing)
    for child in locked_children(session, job_id):
        if child.status in {"queued", "running", "paused"}:
            change_status(session, child, "cancelled")
    row.before_delete(session)
    session.execute(delete(Job).where(Job.id == job_id))

"""Changing a job as somebody asks for: its state, its name, its note, its labels."""

from __future__ import annotations

from api.jobs.schemas import JobChange
from kdnas.db.engine import Session
from kdnas.db.repository import jobs
from kdnas.db.repository.transitions import apply_action


def apply_change(session: Session, job_id: str, change: JobChange) -> None:
    """Do all that a change says, or nothing.

    Raises:
        ConflictError: the job's status forbids the action, or the name is taken.
    """
    if change.note is not None:
        jobs.set_note(session, job_id, change.note)
    if change.labels is not None:
        jobs.set_labels(session, job_id, change.labels)
    if change.action is not None:
        apply_action(session, job_id, change.action)
    if change.name is not None:  # the last, since its event keeps others from writing theirs
        jobs.rename(session, job_id, change.name)

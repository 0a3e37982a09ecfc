"""What a user may do to a job in each state.

``docs/api.md`` shows the table to users. The row changes at once; the process that works on it
sees that and stops by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy.orm import Session

from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.repository.jobs import change_status, locked_children, locked_job
from kdnas.errors import ConflictError
from kdnas.records import SearchStatus

Action = Literal["pause", "resume", "cancel"]

TRANSITIONS: Final[Mapping[Action, Mapping[SearchStatus, SearchStatus]]] = {
    "pause": {"queued": "paused", "running": "paused"},
    "resume": {"paused": "queued", "failed": "queued"},
    "cancel": {
        "queued": "cancelled",
        "running": "cancelled",
        "paused": "cancelled",
        "failed": "cancelled",
    },
}
"""Action → status before → status after; what is not here is refused."""

_PARTICIPLES: Final[Mapping[Action, str]] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
}


def apply_action(session: Session, job_id: str, action: Action) -> SearchStatus:
    """Pause, resume or cancel a job and the jobs that it asked for, with events.

    Args:
        session: of a write transaction.
        job_id: the job.
        action: what a user asks for.

    Returns:
        The new status.

    Raises:
        NotFoundError: no such job.
        ConflictError: its status forbids it; says why, and what to do otherwise.
    """
    row = locked_job(session, job_id)
    status = row.status
    after = TRANSITIONS[action].get(status)
    if action == "resume" and _has_failures_alone(session, row):
        after = "queued"
    of_command = action == "resume" and row.owner_kind == "cli"
    if of_command and (after is not None or _is_deserted(session, row)):
        how = row.resumed_by.format(name=row.name)
        raise ConflictError(
            f"{row.called} was started by the command line, which resumes it with {how}"
        )
    if after is None:
        said = "has succeeded" if status == "succeeded" else f"is {status}"
        raise ConflictError(
            f"{row.called} {said}, so it cannot be {_PARTICIPLES[action]}; "
            f"{_advice(row, status, action)}"
        )
    children = locked_children(session, job_id)
    _change(session, row, action, after)
    for child in children:
        child_after = TRANSITIONS[action].get(child.status)
        if child_after is not None:
            _change(session, child, action, child_after)
    return after


def resume_here(session: Session, job_id: str) -> SearchStatus:
    """Let the command line go on with a job that nobody works on, also with what has failed of it.

    Args:
        session: of a write transaction.
        job_id: the job.

    Returns:
        Its status now; one that has succeeded is paused if anything of it failed.

    Raises:
        NotFoundError: no such job.
    """
    row = locked_job(session, job_id)
    if leases.live_holder(row, leases.database_time(session)) is None:
        if _has_failures_alone(session, row):
            change_status(session, row, "paused")
        row.try_again(session)
    return row.status


def _change(session: Session, row: Job, action: Action, after: SearchStatus) -> None:
    change_status(session, row, after)
    if action == "resume":
        row.try_again(session)


def _has_failures_alone(session: Session, row: Job) -> bool:
    """Whether a job has come to its end, and only what failed of it is left to do."""
    return row.status == "succeeded" and row.num_failed(session) > 0


def _is_deserted(session: Session, row: Job) -> bool:
    """Whether a job counts as running and nobody works on it."""
    now = leases.database_time(session)
    return row.status == "running" and leases.live_holder(row, now) is None


def _advice(row: Job, status: SearchStatus, action: Action) -> str:
    if status == "succeeded":
        return row.result or "its result is there to be read"
    if status == "cancelled":
        return f"what is cancelled stays so: start a new {row.noun}"
    if action == "resume":
        return "pause it first, or leave it to go on"
    if status == "failed":
        return "nothing works on it; resume it to try again, or cancel it"
    return "resume it to go on, or cancel it"  # paused twice

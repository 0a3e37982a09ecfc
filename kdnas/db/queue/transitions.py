"""What a user may do to a job in each state.

``docs/api.md`` shows the table to users. The row changes at once; the process that works on it
sees that and stops by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.repository.events import payloads_of
from kdnas.db.repository.jobs import change_status, locked_children, locked_job
from kdnas.errors import ConflictError
from kdnas.records import SearchStatus

Action = Literal["pause", "pause_now", "resume", "cancel"]

StopWish = Literal["in good order", "at once"]
"""How the process that works on a job is to stop: when the students that it trains have come to
their end, or whatever is lost by it. What writes checkpoints stops within seconds either way."""

TRANSITIONS: Final[Mapping[Action, Mapping[SearchStatus, SearchStatus]]] = {
    "pause": {"queued": "paused", "running": "paused"},
    "pause_now": {"queued": "paused", "running": "paused"},
    "resume": {"paused": "queued", "failed": "queued"},
    "cancel": {
        "queued": "cancelled",
        "running": "cancelled",
        "paused": "cancelled",
        "failed": "cancelled",
    },
}
"""Action → status before → status after; what is not here is refused.

While a process lets trainings of a paused job come to their end, ``pause_now`` ends it, and
``resume`` lets it go on at once, as ``running``.
"""

_PARTICIPLES: Final[Mapping[Action, str]] = {
    "pause": "paused",
    "pause_now": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
}


def apply_action(session: Session, job_id: str, action: Action) -> SearchStatus:
    """Pause, resume or cancel a job and the jobs that it asked for, with events.

    Paused at once, the events say so: that is how a process learns of it that lets trainings end.

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
    children = locked_children(session, job_id)
    after = _after(session, row, action)
    if action == "pause_now" and status == "paused" and after is None:
        after = "paused" if any(_after(session, child, action) for child in children) else None
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
    _change(session, row, action, after)
    for child in children:
        child_after = _after(session, child, action)
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


def stop_wish(session: Session, job_id: str) -> StopWish | None:
    """How the process that works on a job is to stop; None if it is to go on."""
    found = session.execute(select(Job.status, Job.kind).where(Job.id == job_id)).first()
    if found is None:
        return "at once"
    if found.status == "paused":
        told = payloads_of(session, f"{found.kind}_status", job_id)
        return "at once" if told and told[-1].get("at_once") else "in good order"
    return None if found.status == "running" else "at once"


def _after(session: Session, row: Job, action: Action) -> SearchStatus | None:
    """What an action makes of a job; None if its status forbids it."""
    if row.status == "paused" and action in {"pause_now", "resume"}:
        held = leases.live_holder(row, leases.database_time(session)) is not None
        if held and stop_wish(session, row.id) == "in good order":
            return "paused" if action == "pause_now" else "running"
    return TRANSITIONS[action].get(row.status)


def _change(session: Session, row: Job, action: Action, after: SearchStatus) -> None:
    change_status(session, row, after, at_once=action == "pause_now")
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

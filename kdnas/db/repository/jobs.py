"""Jobs of every kind: find one, change its state, say what it does, name and label it, delete it.

:func:`change_status` is the one place that writes a status; whoever claims, pauses, resumes,
cancels, buries or finishes a job calls it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, delete, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from typing_extensions import TypeVar

from kdnas.db.base import insert, locked, new_id, utc_now
from kdnas.db.models import FINAL_STATUSES, Job, JobLabel, kind_of
from kdnas.db.queue import leases
from kdnas.db.repository import names
from kdnas.db.repository.events import actor, append_event
from kdnas.errors import ConflictError
from kdnas.records import SearchStatus

AnyJob = TypeVar("AnyJob", bound=Job, default=Job)

NOT_OVER: tuple[SearchStatus, ...] = ("queued", "running", "paused")
"""Statuses of work that is to end yet; what failed makes room for another try."""


def add_job(
    session: Session,
    table: type[AnyJob],
    requested: Mapping[str, Any],
    *,
    name: str | None = None,
    stem: str | None = None,
    parent_id: str | None = None,
    owner_kind: str = "service",
    labels: Sequence[str] = (),
    **own: Any,
) -> AnyJob:
    """Write a queued job, with an event; invents a name such as ``quiet-otter-3f9c`` if need be.

    Its priority is that of the job that asks for it. Jobs are taken up in the order of their ids,
    which is that of their making, where nothing else is to be heeded (``queue.claims.waiting``).

    The conflict is asked for instead of caught: a savepoint would hide the reason when the disk
    is full, since SQLite then drops the savepoint with the transaction.

    Args:
        session: of a write transaction.
        table: of its kind.
        requested: what the user asked for, as plain JSON.
        name: to call it by.
        stem: what an invented name begins with; None invents all of it.
        parent_id: the job that asks for it.
        owner_kind: who is to do it, ``cli`` or ``service``. The user whose job it is, its owner, is
            that of the job that asks for it, else who asked for the transaction, else, of what the
            command line does, the user of this machine.
        labels: for finding it again.
        own: columns of its kind's own table.

    Raises:
        SpecError: the wanted name is none.
        ConflictError: the wanted name is taken, or another job is to write into the same folder.
    """
    _refuse_shared_output(session, requested.get("output"))
    if name is not None:
        name = names.allowed_name(session, name)
    values: dict[str, Any] = {
        "kind": kind_of(table),
        "requested": dict(requested),
        "parent_id": parent_id,
        "owner_kind": owner_kind,
        "owner": _owner(session, parent_id, owner_kind),
        "priority": _priority(session, parent_id),
        "status": "queued",
        "labels": list(dict.fromkeys(labels)),
        "phase_since": utc_now(),
    }
    row_id = None
    while row_id is None:
        called = name or names.invented_name(stem)
        row_id = session.scalar(
            insert(session, cast(Table, Job.__table__))
            .values(id=new_id(), name=called, **values)
            .on_conflict_do_nothing(index_elements=["kind", "name"])
            .returning(Job.id)
        )
        if row_id is None and name is not None:
            names.refuse_taken_name(session, table, name)
    session.execute(cast(Table, table.__table__).insert().values(id=row_id, **own))
    session.add_all(JobLabel(job_id=row_id, label=label) for label in values["labels"])
    row = session.get_one(table, row_id)
    payload = {"name": row.name} | {k: v for k, v in own.items() if k in table.told_when_created}
    if owner_kind == "cli" and parent_id is None:
        payload["by"] = "cli"
    append_event(session, f"{row.kind}_created", {**row.about, **payload}, job_id=row.id)
    return row


def _owner(session: Session, parent_id: str | None, owner_kind: str) -> str | None:
    """Whose a new job is."""
    if parent_id is not None:
        return session.scalar(select(Job.owner).where(Job.id == parent_id))
    return actor(session) or (_user_of_this_machine() if owner_kind == "cli" else None)


def _priority(session: Session, parent_id: str | None) -> int:
    """Which a new job has: that of the job that asks for it."""
    found = session.scalar(select(Job.priority).where(Job.id == parent_id)) if parent_id else None
    return found or 0


def _user_of_this_machine() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container it may have a number alone
        return None


def _refuse_shared_output(session: Session, output: str | None) -> None:
    """Refuse a folder that a job which is not over yet is to write into.

    The folder itself does not tell: it is empty until what goes there is finished.
    """
    if output is None:
        return
    query = select(Job).where(Job.status.in_(NOT_OVER), Job.spec["output"].as_string() == output)
    if (other := session.scalars(query.limit(1)).first()) is not None:
        raise ConflictError(
            f"{other.called} ({other.status}) is to write into {output}: go on with "
            f"{other.resumed_by.format(name=other.name)}, or give another `output`"
        )


def get_job(
    session: Session,
    reference: str,
    table: type[AnyJob] = Job,  # type: ignore[assignment]
) -> AnyJob:
    """Read a job of a kind by id or name, or one of any kind.

    Raises:
        NotFoundError: there is neither; says which name is nearest.
        ConflictError: jobs of several kinds have the name.
    """
    row = None if "\0" in reference else session.get(table, reference)  # by id mostly
    return row or session.get_one(table, id_of(session, reference, table))


def id_of(session: Session, reference: str, table: type[Job] = Job) -> str:
    """Id of the job that :func:`get_job` would read, and with the same errors.

    A part that is called as its parent, such as a pipeline's search, is read by its id.
    """
    if "\0" in reference:  # no text to PostgreSQL, and no name to anybody
        raise names.unknown(session, table, reference)
    called = names.as_stored(reference)
    query = select(Job.id, Job.kind, Job.parent_id)
    query = query.where(or_(Job.id == reference, Job.name == called)).order_by(Job.id)
    if table is not Job:
        query = query.where(Job.kind == kind_of(table))
    found = session.execute(query).all()
    found = [one for one in found if one.id == reference] or found
    if not found:
        raise names.unknown(session, table, reference)
    ids = {one.id for one in found}
    found = [one for one in found if one.parent_id not in ids]
    if len(found) > 1:
        nouns = " and of ".join(
            f"{names.with_article(names.noun_of(kind))} (id {job_id})" for job_id, kind, _ in found
        )
        raise ConflictError(f"{reference!r} is the name of {nouns}; say which one by its id")
    return found[0][0]


def locked_job(
    session: Session,
    job_id: str,
    table: type[AnyJob] = Job,  # type: ignore[assignment]
) -> AnyJob:
    """The row of a job, kept from other writers until the end of the transaction.

    Raises:
        NotFoundError: no such job.
    """
    row = locked(session, table, job_id)
    if row is None:
        raise names.unknown(session, table, job_id)
    return row


def require_job(session: Session, job_id: str) -> None:
    """Raise NotFoundError unless there is a job with this id."""
    if status_of(session, job_id) is None:
        raise names.unknown(session, Job, job_id)


def newest_jobs(
    session: Session,
    table: type[AnyJob],
    *conditions: ColumnElement[bool],
    statuses: Collection[SearchStatus] = (),
    limit: int | None = 100,
) -> Sequence[AnyJob]:
    """Jobs of a kind that meet the conditions, the newest first."""
    query = select(table).where(*conditions).order_by(table.id.desc()).limit(limit)
    if statuses:
        query = query.where(table.status.in_(statuses))
    return session.scalars(query).all()


def locked_children(session: Session, job_id: str) -> list[Job]:
    """The jobs that a job asked for, all of them locked, in the order of their ids."""
    query = select(Job).where(Job.parent_id == job_id).order_by(Job.id)
    locking = query.with_for_update(key_share=True)
    return list(session.scalars(locking.execution_options(populate_existing=True)))


def children(session: Session, job_id: str) -> list[Job]:
    """The jobs that a job asked for, in the order of their ids."""
    return list(session.scalars(select(Job).where(Job.parent_id == job_id).order_by(Job.id)))


def status_of(session: Session, job_id: str) -> SearchStatus | None:
    """Where a job stands; None if it is gone."""
    return session.scalar(select(Job.status).where(Job.id == job_id))


def phase_of(session: Session, job_id: str) -> str | None:
    """What a job says it does or waits for; None if it says nothing, or is gone."""
    return session.scalar(select(Job.phase).where(Job.id == job_id))


def set_status(
    session: Session,
    job_id: str,
    status: SearchStatus,
    error: str | None = None,
    among: Collection[SearchStatus] | None = None,
) -> SearchStatus:
    """Change the status of a job, as :func:`change_status` does, and return what it is then.

    Args:
        session: of a write transaction.
        job_id: the job.
        status: the new status.
        error: why it failed.
        among: change it only if the status is one of these.

    Raises:
        NotFoundError: no such job.
    """
    row = locked_job(session, job_id)
    if among is None or row.status in among:
        change_status(session, row, status, error)
    return row.status


def change_status(
    session: Session,
    row: Job,
    status: SearchStatus,
    error: str | None = None,
    *,
    at_once: bool = False,
) -> None:
    """Write a status with its times and an event, on a row that the caller has locked.

    The first start is kept as ``started_at``; ``finished_at`` belongs to final statuses only. What
    it did at last is forgotten, and the time since it was set running is added to what it worked.
    That it is to be ``at_once`` is for the process which works on it, and stands in the event.
    """
    now = _begin_phase(row, None)
    row.status, row.error = status, error
    if status == "running" and row.started_at is None:
        row.started_at = now
    row.finished_at = now if status in FINAL_STATUSES else None
    payload: dict[str, Any] = {**row.about, "status": status, "error": error}
    if at_once:
        payload["at_once"] = True
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
        _begin_phase(row, phase)
    row.phase = phase
    return is_new


def note_ending(session: Session, job_id: str, phase: str, done: int, total: int) -> None:
    """Write down what a job waits for that is to stop, and how far it is; no event tells of it.

    Args:
        session: of a write transaction.
        job_id: the job; one that is neither running nor paused is left as it is.
        phase: what is let come to its end.
        done: of the whole, in the kind's own unit.
        total: the whole.
    """
    row = locked_job(session, job_id)
    if row.status in {"running", "paused"}:
        row.phase, row.done, row.total = phase, done, total


def note_rest(session: Session, job_id: str) -> SearchStatus | None:
    """Write down that nothing of a job is let come to its end any more; returns its status.

    What it did since it was paused counts as worked.
    """
    row = locked(session, Job, job_id)
    if row is None:
        return None
    if row.status == "paused" and row.phase is not None:
        if row.phase_since is not None:
            row.worked_seconds += max(0.0, (utc_now() - row.phase_since).total_seconds())
        row.phase, row.phase_since = None, utc_now()
    return row.status


def _what(phase: str | None) -> str | None:
    return None if phase is None else phase.partition(":")[0]


def _begin_phase(row: Job, phase: str | None) -> datetime:
    """Count the time since the last phase as worked, if it ran; returns when the new one began."""
    now = utc_now()
    if row.status == "running" and row.phase_since is not None:
        row.worked_seconds += max(0.0, (now - row.phase_since).total_seconds())
    row.phase, row.phase_since = phase, now
    return now


def note_progress(session: Session, job_id: str, done: int, total: int | None) -> None:
    """Write down how far a job is, in its kind's own unit; no event tells of it."""
    row = locked_job(session, job_id)
    row.done, row.total = done, total


def end_preparation(session: Session, job_id: str, phase: str, worked_before: float) -> None:
    """Count a run's time as worked from now on: the remaining time goes by how fast work itself is.

    Args:
        session: of a write transaction.
        job_id: the job; one that is not running is left as it is.
        phase: what it does from now on.
        worked_before: seconds that it had worked when this run began.
    """
    row = locked_job(session, job_id)
    if row.status == "running":
        row.phase, row.phase_since = phase, utc_now()
        row.worked_seconds = 0.0 if row.total is None else worked_before


def resolve(session: Session, job_id: str, resolved: Mapping[str, Any]) -> None:
    """Store a job's request with nothing left open, beside what was asked for.

    Raises:
        NotFoundError: no such job.
    """
    locked_job(session, job_id).resolved = dict(resolved)


def rename(session: Session, job_id: str, name: str) -> None:
    """Give a job another name, with an event; links go by id and stay whole.

    Raises:
        SpecError: it is no name.
        NotFoundError: no such job.
        ConflictError: another job of its kind has the name, or any job has it as its id.
    """
    row = locked_job(session, job_id)
    name = names.allowed_name(session, name)
    if row.name == name:
        return
    names.refuse_taken_name(session, type(row), name)
    row.name = name
    try:
        session.flush()
    except IntegrityError as error:  # between the question and the answer
        raise names.taken(type(row), name) from error
    append_event(session, f"{row.kind}_renamed", {**row.about, "name": name}, job_id=row.id)


def set_note(session: Session, job_id: str, note: str | None) -> bool:
    """Write what a user wants to remember of a job, an empty text for none; whether that is new.

    The caller tells of it, by :func:`tell_note`, when all else is written.
    """
    row = locked_job(session, job_id)
    before, row.note = row.note, note or None
    return row.note != before


def set_labels(session: Session, job_id: str, labels: Sequence[str]) -> bool:
    """Give a job these labels and no others, each once and in their order; whether they are new.

    The caller tells of it, by :func:`tell_labels`, when all else is written.
    """
    row = locked_job(session, job_id)
    before, row.labels = row.labels, list(dict.fromkeys(labels))
    session.execute(delete(JobLabel).where(JobLabel.job_id == job_id))
    session.add_all(JobLabel(job_id=job_id, label=label) for label in row.labels)
    return row.labels != before


def set_priority(session: Session, job_id: str, priority: int) -> bool:
    """Have a job and those that it asked for taken up before others; whether that is new.

    The caller tells of it, by :func:`tell_priority`, when all else is written.
    """
    row = locked_job(session, job_id)
    before = row.priority
    for one in (row, *locked_children(session, job_id)):
        one.priority = priority
    return before != priority


def tell_priority(session: Session, job_id: str) -> None:
    """Write the event of a new priority."""
    row = locked_job(session, job_id)
    payload = {**row.about, "priority": row.priority}
    append_event(session, f"{row.kind}_prioritised", payload, job_id=row.id)


def tell_note(session: Session, job_id: str) -> None:
    """Write the event of a new note."""
    row = locked_job(session, job_id)
    append_event(session, f"{row.kind}_noted", {**row.about, "note": row.note}, job_id=row.id)


def tell_labels(session: Session, job_id: str) -> None:
    """Write the event of new labels."""
    row = locked_job(session, job_id)
    payload = {**row.about, "labels": row.labels}
    append_event(session, f"{row.kind}_labelled", payload, job_id=row.id)


def refuse_deletion(session: Session, row: Job, *, with_standing: bool) -> None:
    """Raise ConflictError if a job is at work, or if others stand on it; says which.

    One that was paused is at work until its process has let go, and would leave things behind.
    """
    if row.status == "running":
        raise ConflictError(f"{row.called} is running; cancel it before deleting it")
    if row.status == "paused" and leases.live_holder(row, leases.database_time(session)):
        raise ConflictError(
            f"{row.called} is paused, and a process works on it still; wait until that has ended, "
            "or cancel it before deleting it"
        )
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

    Children that are not over are cancelled first, since nobody waits for them any more. An event
    says that it was deleted and stays, told of the job that had asked for it.

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
    root = row.event_root(session)
    append_event(
        session,
        f"{row.kind}_deleted",
        {**row.about, "job": row.id, "kind": row.kind, "name": row.name},
        root_job_id=None if root == row.id else root,
    )
    # After the event: who waits for the numbering of events may hold a part of this row.
    session.execute(delete(Job).where(Job.id == job_id))

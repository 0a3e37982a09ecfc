"""Distillations for one task: create, what was found out, and their runs one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from kdnas.db.models import TaskDistillation, TaskDistillationRun
from kdnas.db.models.task_distillations import TRY_AGAIN
from kdnas.db.records import OwnerKind, TaskDistillationRecord, record_of
from kdnas.db.repository.jobs import add_job, get_job, locked_job
from kdnas.records import TaskFacts, TaskRun


def create_task_distillation(
    session: Session,
    spec: Mapping[str, Any],
    *,
    task: str | None = None,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
    parent_id: str | None = None,
) -> TaskDistillationRecord:
    """Write queued distillations for a task, with an event.

    Args:
        session: of a write transaction.
        spec: a :class:`~kdnas.specs.task_distillation.TaskDistillationSpec` as JSON.
        task: what it is called in lists; None calls it as the request does.
        name: to call them by.
        owner_kind: who is to do them.
        parent_id: the job that asks for them.

    Raises:
        ConflictError: the name is taken, or another job is to write into the same folder.
    """
    row = add_job(
        session,
        TaskDistillation,
        spec,
        name=name,
        owner_kind=owner_kind,
        parent_id=parent_id,
        task=task or spec["task"],
        student=spec["student"],
    )
    return record_of(row, TaskDistillationRecord)


def get_task_distillation(session: Session, reference: str) -> TaskDistillationRecord:
    """Read distillations for a task by id or name.

    Raises:
        NotFoundError: there are neither.
    """
    return record_of(get_job(session, reference, TaskDistillation), TaskDistillationRecord)


def asked_for_by(session: Session, parent_id: str) -> list[TaskDistillationRecord]:
    """The distillations for tasks that a job has asked for, in the order of their ids."""
    query = (
        select(TaskDistillation)
        .where(TaskDistillation.parent_id == parent_id)
        .order_by(TaskDistillation.id)
        .execution_options(populate_existing=True)
    )
    return [record_of(row, TaskDistillationRecord) for row in session.scalars(query)]


def mean_scores(session: Session, job_ids: Collection[str]) -> dict[str, float]:
    """Job → mean score of its runs that came to something; without those that have none."""
    of = TaskDistillationRun.task_distillation_id
    query = (
        select(of, func.avg(TaskDistillationRun.main))
        .where(of.in_(job_ids), TaskDistillationRun.main.is_not(None))
        .group_by(of)
    )
    return {job_id: float(mean) for job_id, mean in session.execute(query)}


def task_facts(session: Session, job_id: str) -> TaskFacts | None:
    """Return what preparing distillations for a task has found out; None before."""
    query = select(TaskDistillation.facts).where(TaskDistillation.id == job_id)
    found = session.scalar(query)
    return None if found is None else TaskFacts.from_json(_plain(found))


def set_task_facts(session: Session, job_id: str, facts: TaskFacts) -> None:
    """Write down what preparing distillations for a task has found out; they go on with that.

    Runs that failed are forgotten if a user has resumed the job since it was prepared the last
    time.

    Raises:
        NotFoundError: no such job.
    """
    row = locked_job(session, job_id, TaskDistillation)
    if row.facts is not None and row.facts.get(TRY_AGAIN):
        failed = _of(delete(TaskDistillationRun), job_id)
        session.execute(failed.where(TaskDistillationRun.error.is_not(None)))
    row.facts = facts.to_json()


def add_run(session: Session, job_id: str, run: TaskRun) -> None:
    """Write down what a run came to; one that is there is left as it is.

    Raises:
        NotFoundError: no such job.
    """
    locked_job(session, job_id)
    if session.get(TaskDistillationRun, (job_id, run.method, run.seed)) is None:
        session.add(TaskDistillationRun(task_distillation_id=job_id, **run.to_json()))


def finished_runs(session: Session, job_id: str) -> set[tuple[str, int]]:
    """Method and seed of every run that is done."""
    query = select(TaskDistillationRun.method, TaskDistillationRun.seed)
    return {(method, seed) for method, seed in session.execute(_of(query, job_id))}


def task_runs(session: Session, job_id: str) -> list[TaskRun]:
    """What every run that is done came to, by method and seed."""
    columns = [getattr(TaskDistillationRun, name) for name in RUN_FIELDS]
    query = select(*columns).order_by(TaskDistillationRun.method, TaskDistillationRun.seed)
    found = session.execute(_of(query, job_id))
    return [TaskRun.from_json(dict(zip(RUN_FIELDS, row, strict=True))) for row in found]


RUN_FIELDS = tuple(TaskRun.__dataclass_fields__)
"""Columns of a run, in the order of :class:`~kdnas.records.TaskRun`."""


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key != TRY_AGAIN}


def _of(query: Any, job_id: str) -> Any:
    return query.where(TaskDistillationRun.task_distillation_id == job_id)

"""Evaluations: a row for a model, a task and a seed.

What a row's request is resolved to holds a ``key`` that names all that decides the figures; work
that was done before is found by it. There is none until somebody has read model and data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.models import Distillation, Evaluation, PipelineMember
from kdnas.db.queue import leases
from kdnas.db.records import EvaluationRecord, OwnerKind, record_of
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import (
    add_job,
    change_status,
    get_job,
    locked_job,
    newest_jobs,
    note_phase,
)
from kdnas.records import SearchStatus

KEY = "key"
"""Entry of what decides the figures (``resolved``)."""


@dataclass(frozen=True, slots=True)
class NewEvaluation:
    """A task and a seed that a model is to be evaluated on; ``request`` is plain JSON."""

    suite: str
    task: str
    seed: int
    request: Mapping[str, Any]


def create_evaluations(
    session: Session,
    wanted: Iterable[NewEvaluation],
    *,
    model: str,
    distillation_id: str | None = None,
    owner_kind: OwnerKind = "service",
    pipeline_member_id: str | None = None,
) -> list[str]:
    """Queue evaluations, with events; returns their ids in order.

    Args:
        session: of a write transaction.
        wanted: tasks and seeds.
        model: how the user names the model.
        distillation_id: of the distillation that made the model.
        owner_kind: who is to do them.
        pipeline_member_id: the model in the pipeline that asks for them.
    """
    asking = select(PipelineMember.pipeline_id).where(PipelineMember.id == pipeline_member_id)
    parent_id = session.scalar(asking)
    return [
        _add(
            session,
            one,
            owner_kind=owner_kind,
            parent_id=parent_id,
            model=model,
            distillation_id=distillation_id,
            pipeline_member_id=pipeline_member_id,
        ).id
        for one in wanted
    ]


def take_evaluation(
    session: Session,
    spec: Mapping[str, Any],
    *,
    model: str,
    suite: str,
    task: str,
    seed: int,
    distillation_id: str | None = None,
) -> EvaluationRecord:
    """Find the row of an evaluation that was begun before, or write a queued one.

    Args:
        session: of a write transaction.
        spec: what decides the figures, with a ``key`` that names it.
        model: how the user names the model.
        suite: of the task.
        task: its name.
        seed: of the fine-tuning.
        distillation_id: of the distillation that made the model; one that is not in this database
            is left out.
    """
    row = session.scalar(_of_key(task, seed, str(spec[KEY])))
    if row is None:
        row = _add(
            session,
            NewEvaluation(suite, task, seed, spec),
            owner_kind="cli",
            model=model,
            distillation_id=_if_known(session, distillation_id),
        )
        row.resolved = dict(spec)
    return evaluation_record(row)


def _add(session: Session, new: NewEvaluation, **values: Any) -> Evaluation:
    return add_job(
        session,
        Evaluation,
        new.request,
        stem=f"{new.task}-seed-{new.seed}".replace(" ", "-"),
        suite=new.suite,
        task=new.task,
        seed=new.seed,
        metrics={},
        **values,
    )


def _if_known(session: Session, distillation_id: str | None) -> str | None:
    known = distillation_id and session.get(Distillation, distillation_id)
    return distillation_id if known else None


def find_finished(session: Session, key: str, task: str, seed: int) -> EvaluationRecord | None:
    """Return the evaluation of a key if it has succeeded."""
    row = session.scalar(_of_key(task, seed, key).where(Evaluation.status == "succeeded"))
    return None if row is None else evaluation_record(row)


def _of_key(task: str, seed: int, key: str) -> Any:
    return (
        select(Evaluation)
        .where(
            Evaluation.task == task,
            Evaluation.seed == seed,
            Evaluation.status != "cancelled",
            Evaluation.resolved[KEY].as_string() == key,
        )
        .order_by(Evaluation.status != "succeeded", Evaluation.id)
        .limit(1)
    )


def get_evaluation(session: Session, evaluation_id: str) -> EvaluationRecord:
    """Read an evaluation.

    Raises:
        NotFoundError: no such evaluation.
    """
    return evaluation_record(get_job(session, evaluation_id, Evaluation))


def list_evaluations(
    session: Session,
    *,
    model: str | None = None,
    suite: str | None = None,
    distillation_id: str | None = None,
    statuses: Collection[SearchStatus] = (),
    limit: int = 100,
) -> list[EvaluationRecord]:
    """Evaluations, the newest first; what is None may be anything."""
    wanted = (
        (Evaluation.model, model),
        (Evaluation.suite, suite),
        (Evaluation.distillation_id, distillation_id),
    )
    named = [column == value for column, value in wanted if value is not None]
    found = newest_jobs(session, Evaluation, *named, statuses=statuses, limit=limit)
    return [evaluation_record(row) for row in found]


def set_figures(
    session: Session, evaluation_id: str, metrics: Mapping[str, Any]
) -> EvaluationRecord:
    """Write down that an evaluation has succeeded, with the figures that came out.

    Raises:
        NotFoundError: no such evaluation.
    """
    row = locked_job(session, evaluation_id, Evaluation)
    row.metrics = dict(metrics)
    row.total = row.total or 1
    row.done = row.total
    change_status(session, row, "succeeded")
    return evaluation_record(row)


def note_evaluation_progress(
    session: Session, evaluation_id: str, phase: str, done: int, total: int, loss: float | None
) -> None:
    """Note how far an evaluation is, with an event.

    Args:
        session: of a write transaction.
        evaluation_id: the row.
        phase: ``training``, or the evaluation set that is predicted.
        done: steps or examples.
        total: of them.
        loss: mean training loss of the last steps, where it is known.

    Raises:
        NotFoundError: no such evaluation.
    """
    row = locked_job(session, evaluation_id, Evaluation)
    if phase == "training":
        row.done, row.total = min(done, total), total
    note_phase(session, evaluation_id, phase)
    payload = {**row.about, "phase": phase, "done": done, "total": total, "loss": loss}
    append_event(session, "evaluation_progress", payload, job_id=evaluation_id)


def note_in_results(session: Session, ids: Iterable[str], name: str, value: Any) -> None:
    """Set an entry of the figures of evaluations that have succeeded; no event tells of it."""
    for evaluation_id in sorted(ids):
        row = locked_job(session, evaluation_id, Evaluation)
        row.metrics = {**(row.metrics or {}), name: value}


def note_prepared(
    session: Session,
    evaluation_id: str,
    about: Mapping[str, Any],
    distillation_id: str | None = None,
) -> None:
    """Write down what was found out before the work begins.

    Args:
        session: of a write transaction.
        evaluation_id: a row that the service was asked for.
        about: what decides the figures, a ``key`` among it.
        distillation_id: of the distillation that made the model; one that is not in this database
            is left out.

    Raises:
        NotFoundError: no such evaluation.
    """
    row = locked_job(session, evaluation_id, Evaluation)
    row.resolved = dict(about)
    row.distillation_id = _if_known(session, distillation_id) or row.distillation_id


def is_older_at_work(session: Session, evaluation_id: str) -> bool:
    """Whether somebody works on an older row that comes to the same figures.

    One without a key yet is compared by its request. The younger one of two is told of the other
    and never both, so that they do not wait for each other.

    Raises:
        NotFoundError: no such evaluation.
    """
    row = locked_job(session, evaluation_id, Evaluation)
    older = select(Evaluation).where(
        Evaluation.id < row.id,
        Evaluation.task == row.task,
        Evaluation.seed == row.seed,
        Evaluation.status == "running",
    )
    now = leases.database_time(session)
    return any(
        leases.live_holder(other, now) is not None and _comes_to_the_same(other, row)
        for other in session.scalars(older)
    )


def _comes_to_the_same(one: Evaluation, other: Evaluation) -> bool:
    if one.resolved is None:
        return one.requested == other.requested
    return other.resolved is not None and one.resolved[KEY] == other.resolved[KEY]


def evaluation_record(row: Evaluation) -> EvaluationRecord:
    """What is stored of an evaluation."""
    return record_of(
        row,
        EvaluationRecord,
        name=row.name or row.id,
        share=min((row.done or 0) / row.total, 1.0) if row.total else 0.0,
    )

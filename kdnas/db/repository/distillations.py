"""Full distillations and their curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from kdnas.architecture import Architecture
from kdnas.db.models import (
    Distillation,
    DistillationCurvePoint,
    DistillationReading,
)
from kdnas.db.queue import leases
from kdnas.db.records import (
    DistillationOverview,
    DistillationRecord,
    HeldOutReading,
    OwnerKind,
)
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import get_job, locked_job
from kdnas.db.repository.names import add_job
from kdnas.errors import ConflictError
from kdnas.records import CurvePoint, Losses, SearchStatus

UNFINISHED: tuple[SearchStatus, ...] = ("queued", "running", "paused", "failed")
"""Statuses of work that may be gone on with, or cancelled."""
NOT_OVER: tuple[SearchStatus, ...] = ("queued", "running", "paused")
"""Statuses of work that is to end yet; what failed makes room for another try."""


def create_distillation(
    session: Session,
    spec: Mapping[str, Any],
    architecture: Architecture,
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
    search_id: str | None = None,
    parent_id: str | None = None,
) -> DistillationRecord:
    """Write a queued distillation, with an event.

    Args:
        session: of a write transaction.
        spec: the request as plain JSON.
        architecture: of the student.
        name: to call it by; None invents one.
        owner_kind: who is to do it.
        search_id: where its inputs come from.
        parent_id: the job that asks for it.

    Raises:
        ConflictError: the name is taken, or another one is to write into the same folder.
    """
    _refuse_shared_output(session, spec.get("output"))
    row = add_job(
        session,
        Distillation,
        spec,
        name=name,
        owner_kind=owner_kind,
        parent_id=parent_id,
        architecture=str(architecture),
        search_id=search_id,
        metrics={},
    )
    return _record(row)


def _refuse_shared_output(session: Session, output: str | None) -> None:
    """Refuse a folder that one which is not over yet is to write into.

    The folder itself does not tell: it is empty until the student is finished.
    """
    if output is None:
        return
    query = select(Distillation).where(
        Distillation.status.in_(NOT_OVER), Distillation.spec["output"].as_string() == output
    )
    if (other := session.scalars(query.limit(1)).first()) is not None:
        raise ConflictError(
            f"distillation {other.name!r} ({other.status}) is to write into {output}: go on with "
            f"kdnas full-distill --resume {other.name}, or give another --output"
        )


def get_distillation(session: Session, reference: str) -> DistillationRecord:
    """Read a distillation by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return _record(get_job(session, reference, Distillation))


def distillations_of(
    session: Session, distillation_ids: Collection[str]
) -> dict[str, DistillationRecord]:
    """Distillations by their ids."""
    query = select(Distillation).where(Distillation.id.in_(distillation_ids))
    return {row.id: _record(row) for row in session.scalars(query)}


def list_distillations(
    session: Session,
    *,
    status: SearchStatus | None = None,
    objective: str | None = None,
    owner_kind: OwnerKind | None = None,
    before_id: str | None = None,
    limit: int = 100,
) -> list[DistillationRecord]:
    """Distillations, the newest first; ``before_id`` goes on after the last one of a page."""
    query = select(Distillation).order_by(Distillation.id.desc()).limit(limit)
    if status is not None:
        query = query.where(Distillation.status == status)
    if objective is not None:
        query = query.where(Distillation.spec["objective"]["name"].as_string() == objective)
    if owner_kind is not None:
        query = query.where(Distillation.owner_kind == owner_kind)
    if before_id is not None:
        query = query.where(Distillation.id < before_id)
    return [_record(row) for row in session.scalars(query)]


def set_distillation_progress(
    session: Session,
    distillation_id: str,
    step: int,
    total_steps: int,
    points: Sequence[CurvePoint] = (),
    held_out: Sequence[HeldOutReading] = (),
) -> None:
    """Note how far training is, and append to its curve and its readings, with an event.

    Those from the first new step on are replaced: a run resumed from a checkpoint repeats steps.

    Raises:
        NotFoundError: no such distillation.
    """
    row = locked_job(session, distillation_id, Distillation)
    row.done, row.total = step, total_steps
    if points:
        session.execute(
            delete(DistillationCurvePoint).where(
                DistillationCurvePoint.distillation_id == row.id,
                DistillationCurvePoint.step >= min(point.step for point in points),
            )
        )
        session.add_all(
            DistillationCurvePoint(
                distillation_id=row.id,
                step=point.step,
                loss=point.loss,
                learning_rate=point.learning_rate,
            )
            for point in points
        )
    if held_out:
        session.execute(
            delete(DistillationReading).where(
                DistillationReading.distillation_id == row.id,
                DistillationReading.step >= min(reading.step for reading in held_out),
            )
        )
        session.add_all(
            DistillationReading(
                distillation_id=row.id,
                step=reading.step,
                loss_training=reading.losses.training,
                loss_mean=reading.losses.mean,
                loss_relative=reading.losses.relative,
                loss_output=reading.losses.output,
            )
            for reading in held_out
        )
    payload = {
        "step": step,
        "total_steps": total_steps,
        "loss": points[-1].loss if points else None,
        "relative": held_out[-1].losses.relative if held_out else None,
    }
    append_event(session, "distillation_progress", payload, job_id=row.id)


def set_distillation_result(
    session: Session,
    distillation_id: str,
    *,
    metrics: Mapping[str, Any],
    artefact: str | None = None,
    output_path: str | None = None,
) -> None:
    """Store what came out: figures, the artefact in the store, the exported folder.

    Raises:
        NotFoundError: no such distillation.
    """
    row = locked_job(session, distillation_id, Distillation)
    row.metrics, row.artefact, row.output_path = dict(metrics), artefact, output_path
    session.flush()


def is_output_of_command(session: Session, folder: str) -> bool:
    """Whether the command line has put a student into this folder."""
    query = select(Distillation.id).where(
        Distillation.output_path == folder, Distillation.owner_kind == "cli"
    )
    return session.scalar(query.limit(1)) is not None


def distillation_curve(session: Session, distillation_id: str) -> list[CurvePoint]:
    """The training curve in the order of its steps.

    Raises:
        NotFoundError: no such distillation.
    """
    get_job(session, distillation_id, Distillation)
    query = (
        select(DistillationCurvePoint)
        .where(DistillationCurvePoint.distillation_id == distillation_id)
        .order_by(DistillationCurvePoint.step)
    )
    return [CurvePoint(p.step, p.loss, p.learning_rate) for p in session.scalars(query)]


def distillation_readings(session: Session, distillation_id: str) -> list[HeldOutReading]:
    """The held-out readings in the order of their steps.

    Raises:
        NotFoundError: no such distillation.
    """
    get_job(session, distillation_id, Distillation)
    query = (
        select(DistillationReading)
        .where(DistillationReading.distillation_id == distillation_id)
        .order_by(DistillationReading.step)
    )
    return [_reading(row) for row in session.scalars(query)]


def overviews(
    session: Session, records: Collection[DistillationRecord]
) -> list[DistillationOverview]:
    """Distillations with their newest readings and who works on them, in the order given."""
    last = (
        select(
            DistillationReading.distillation_id, func.max(DistillationReading.step).label("step")
        )
        .where(DistillationReading.distillation_id.in_([record.id for record in records]))
        .group_by(DistillationReading.distillation_id)
        .subquery()
    )
    query = select(DistillationReading).join(
        last,
        (DistillationReading.distillation_id == last.c.distillation_id)
        & (DistillationReading.step == last.c.step),
    )
    newest = {row.distillation_id: _reading(row) for row in session.scalars(query)}
    return [
        DistillationOverview(
            record, newest.get(record.id), leases.holder(session, Distillation, record.id)
        )
        for record in records
    ]


def _reading(row: DistillationReading) -> HeldOutReading:
    losses = Losses(row.loss_training, row.loss_mean, row.loss_relative, row.loss_output)
    return HeldOutReading(row.step, losses)


def _record(row: Distillation) -> DistillationRecord:
    return DistillationRecord(
        id=row.id,
        name=row.name or row.id,
        architecture=Architecture.parse(row.architecture),
        spec=row.spec,
        status=cast(SearchStatus, row.status),
        owner_kind=cast(OwnerKind, row.owner_kind),
        step=row.done or 0,
        total_steps=row.total,
        metrics=row.metrics,
        artefact=row.artefact,
        output_path=row.output_path,
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )

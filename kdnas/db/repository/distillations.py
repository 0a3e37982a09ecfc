"""Full distillations and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kdnas.architecture import Architecture
from kdnas.db.models import Distillation, DistillationCurvePoint, DistillationReading
from kdnas.db.records import (
    DistillationRecord,
    HeldOutReading,
    OwnerKind,
    record_of,
)
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import add_job, get_job, locked_job
from kdnas.records import CurvePoint, SearchStatus

UNFINISHED: tuple[SearchStatus, ...] = ("queued", "running", "paused", "failed")
"""Statuses of work that may be gone on with, or cancelled."""


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
    return distillation_record(row)


def get_distillation(session: Session, reference: str) -> DistillationRecord:
    """Read a distillation by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return distillation_record(get_job(session, reference, Distillation))


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
    _append(
        session,
        [DistillationCurvePoint(distillation_id=row.id, **asdict(point)) for point in points],
    )
    _append(
        session,
        [
            DistillationReading(distillation_id=row.id, step=one.step, losses=one.losses)
            for one in held_out
        ],
    )
    payload = {
        "step": step,
        "total_steps": total_steps,
        "loss": points[-1].loss if points else None,
        "relative": held_out[-1].losses.relative if held_out else None,
    }
    append_event(session, "distillation_progress", payload, job_id=row.id)


def _append(session: Session, rows: Sequence[DistillationCurvePoint | DistillationReading]) -> None:
    if not rows:
        return
    table, first = type(rows[0]), min(row.step for row in rows)
    own = table.distillation_id == rows[0].distillation_id
    session.execute(delete(table).where(own, table.step >= first))
    session.add_all(rows)


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
    row = get_job(session, distillation_id, Distillation)
    return [record_of(point, CurvePoint) for point in row.curve]


def distillation_readings(session: Session, distillation_id: str) -> list[HeldOutReading]:
    """The held-out readings in the order of their steps.

    Raises:
        NotFoundError: no such distillation.
    """
    row = get_job(session, distillation_id, Distillation)
    return [record_of(reading, HeldOutReading) for reading in row.readings]


def distillation_record(row: Distillation) -> DistillationRecord:
    """What is stored of a distillation, but for its curve."""
    return record_of(
        row,
        DistillationRecord,
        architecture=Architecture.parse(row.architecture),
        step=row.done or 0,
        total_steps=row.total,
    )

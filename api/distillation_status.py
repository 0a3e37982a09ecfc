"""How a running distillation stands in the database; a cancelled one stays cancelled."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from kdnas.db.engine import Database
from kdnas.db.records import DistillationRecord, HeldOutReading
from kdnas.db.repository import distillations
from kdnas.distill.full import Distilled, FullProgress
from kdnas.errors import CancelledError, ConflictError
from kdnas.records import SearchStatus


def is_cancelled(database: Database, distillation_id: str) -> bool:
    """Whether somebody cancelled it."""
    with database.read() as session:
        return distillations.get_distillation(session, distillation_id).status == "cancelled"


def note_progress(database: Database, distillation_id: str, progress: FullProgress) -> None:
    """Write the new points of the curve and the new held-out reading, if there are any."""
    point = progress.held_out
    if point is None and not progress.points:
        return
    readings = [] if point is None else [HeldOutReading(point.step, point.losses)]
    with database.write() as session:
        distillations.set_distillation_progress(
            session,
            distillation_id,
            progress.step,
            progress.total_steps,
            progress.points,
            readings,
        )


def note_status(
    database: Database, record: DistillationRecord, status: SearchStatus, error: str | None = None
) -> DistillationRecord:
    """Change the status of a distillation that this process works on.

    Raises:
        CancelledError: somebody cancelled it; nothing is written.
    """
    try:
        with database.write() as session:
            return distillations.set_distillation_status(
                session, record.id, status, error, expected=distillations.UNFINISHED
            )
    except ConflictError:
        raise _cancelled(record) from None


def note_end(
    database: Database, record: DistillationRecord, distilled: Distilled, output: Path
) -> DistillationRecord:
    """Write down where a run ended: all readings, and the result if it is finished.

    Raises:
        CancelledError: somebody cancelled it; nothing is written.
    """
    readings = [HeldOutReading(point.step, point.losses) for point in distilled.held_out]
    try:
        with database.write() as session:
            distillations.set_distillation_progress(
                session, record.id, distilled.steps, distilled.total_steps, held_out=readings
            )
            if distilled.finished:
                distillations.set_distillation_result(
                    session,
                    record.id,
                    metrics={"step": distilled.best.step, **asdict(distilled.best.losses)},
                    artefact=None,
                    output_path=str(output),
                )
            return distillations.set_distillation_status(
                session,
                record.id,
                "succeeded" if distilled.finished else "paused",
                expected=distillations.UNFINISHED,
            )
    except ConflictError:
        raise _cancelled(record) from None


def _cancelled(record: DistillationRecord) -> CancelledError:
    return CancelledError(
        f"distillation {record.name!r} was cancelled, so this run has ended and its checkpoints "
        "are removed; start a new one with kdnas full-distill"
    )

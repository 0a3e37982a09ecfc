"""How a running distillation stands in the database; what others wrote there stays so."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from api.jobs.context import JobContext
from kdnas.db.engine import Database
from kdnas.db.records import HeldOutReading
from kdnas.db.repository import distillations, jobs
from kdnas.distill.full import Distilled, FullProgress


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


def note_end(context: JobContext, distilled: Distilled, output: Path) -> None:
    """Write down where a run ended: all readings, and the result if it is finished.

    The result is written only where the job is still ``running``: what was paused on its last step
    succeeds as soon as it is resumed.
    """
    readings = [HeldOutReading(point.step, point.losses) for point in distilled.held_out]
    with context.database.write() as session:
        distillations.set_distillation_progress(
            session, context.id, distilled.steps, distilled.total_steps, held_out=readings
        )
        if distilled.finished and jobs.locked_job(session, context.id).status == "running":
            distillations.set_distillation_result(
                session,
                context.id,
                metrics={"step": distilled.best.step, **asdict(distilled.best.losses)},
                artefact=None,
                output_path=str(output),
            )

"""Distillations in lists, each with its losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from kdnas.db.lists.job_pages import Listing, Row, equal_to, reference_to
from kdnas.db.models import Distillation, DistillationReading, Search

LOSSES = ("training", "mean", "relative", "output")
OBJECTIVE: Final = Distillation.spec["objective"]["name"].as_string()


def _with_losses(session: Session, rows: list[Row]) -> list[Row]:
    """Give each the losses of its result, or of its newest reading, or None."""
    newest = _newest_readings(session, [row["id"] for row in rows])
    return [{**row, "losses": _of_result(row["losses"]) or newest.get(row["id"])} for row in rows]


def _of_result(metrics: Row) -> Row | None:
    named = {name: metrics[name] for name in ("step", *LOSSES) if name in metrics}
    return named if named.keys() >= set(LOSSES) else None


def _newest_readings(session: Session, ids: Sequence[str]) -> dict[str, Row]:
    of, step = DistillationReading.distillation_id, DistillationReading.step
    newest = select(of, func.max(step)).where(of.in_(ids)).group_by(of)
    query = select(DistillationReading).where(tuple_(of, step).in_(newest))
    return {
        reading.distillation_id: {
            "step": reading.step,
            **{name: getattr(reading, f"loss_{name}") for name in LOSSES},
        }
        for reading in session.scalars(query)
    }


LISTING: Final = Listing(
    Distillation,
    columns={
        "architecture": Distillation.architecture,
        "objective": OBJECTIVE,
        "teacher": Distillation.spec["teacher"]["ref"].as_string(),
        "search_id": Distillation.search_id,
        "losses": Distillation.metrics,
        "output": Distillation.output_path,
    },
    sorts={"architecture": Distillation.architecture},
    filters={
        "architecture": equal_to(Distillation.architecture),
        "objective": equal_to(OBJECTIVE),
        "search": reference_to(Search, Distillation.search_id),
    },
    complete=_with_losses,
)
"""The list of distillations; ``losses`` are those of the result, or of the newest reading."""

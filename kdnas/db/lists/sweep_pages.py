"""Sweeps as a list."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from kdnas.db.lists.job_pages import Listing, Row, equal_to
from kdnas.db.models import Sweep
from kdnas.db.repository import sweeps

OBJECTIVE: Final = Sweep.spec["objective"]["name"].as_string()


def _with_warnings(session: Session, rows: list[Row]) -> list[Row]:
    facts = ((row, sweeps.sweep_facts(session, row["id"])) for row in rows)
    return [{**row, "warnings": [] if found is None else found.warnings} for row, found in facts]


LISTING: Final = Listing(
    Sweep,
    columns={
        "teacher": Sweep.spec["teacher"]["ref"].as_string(),
        "corpus": Sweep.spec["corpus"]["source"],
        "objective": OBJECTIVE,
        "steps": Sweep.spec["steps"],
        "seeds": Sweep.spec["seeds"],
    },
    filters={"objective": equal_to(OBJECTIVE)},
    detail=_with_warnings,
)
"""The list of sweeps; one in full has its warnings."""

"""The losses of a distillation as REST and the command line show them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kdnas.db.engine import Session
from kdnas.db.repository import distillations
from kdnas.search.thinning import evenly

NUM_POINTS, MOST_POINTS = 1000, 10_000


def read_losses(session: Session, reference: str, limit: int = NUM_POINTS) -> dict[str, Any]:
    """Read the curve and the held-out losses of one, each thinned to so many points.

    They are a :class:`~api.distillations.schemas.DistillationCurve`.

    Args:
        session: to read with.
        reference: id or name of a distillation.
        limit: points of each at most.

    Raises:
        NotFoundError: there is no such distillation.
    """
    found = distillations.get_distillation(session, reference)
    points = distillations.distillation_curve(session, found.id)
    readings = distillations.distillation_readings(session, found.id)
    return {
        "points": [asdict(point) for point in evenly(points, limit)],
        "held_out": [{"step": one.step, **asdict(one.losses)} for one in evenly(readings, limit)],
    }

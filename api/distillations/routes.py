"""How the losses of a full distillation went."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.distillations.schemas import DistillationCurve
from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered
from kdnas.db.engine import Session
from kdnas.db.repository import distillations
from kdnas.search.thinning import evenly

NUM_POINTS, MOST_POINTS = 1000, 10_000

router = APIRouter(tags=["distillations"])


@router.get("/distillations/{distillation}/curve", response_model=DistillationCurve)
def read_curve(
    distillation: Annotated[str, Path(description="Id or name of a distillation.", max_length=200)],
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = NUM_POINTS,
) -> Response:
    """Give the training curve and the held-out losses, each thinned to so many points."""
    with database.read() as session:
        return rendered(read_losses(session, distillation, limit))


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

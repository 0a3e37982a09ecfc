"""How the losses of a full distillation went."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.distillations.reading import MOST_POINTS, NUM_POINTS, read_losses
from api.distillations.schemas import DistillationCurve
from api.http.dependencies import DatabaseDep
from api.http.rendering import rendered

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

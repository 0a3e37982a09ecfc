"""Distillations as REST and the command line show them: a page of their list, and the losses."""

from __future__ import annotations

from typing import Any

from api.distillations.schemas import DistillationQuery
from api.http.rendering import sorting
from kdnas.db.engine import Session
from kdnas.db.lists import distillation_pages
from kdnas.db.lists.distillation_pages import DistillationFilter
from kdnas.db.lists.pages import PageOf
from kdnas.db.repository import distillations, searches
from kdnas.search.thinning import evenly

NUM_POINTS, MOST_POINTS = 1000, 10_000


def read_page(session: Session, query: DistillationQuery) -> PageOf[distillation_pages.Row]:
    """Read a page of distillations as their list has them.

    Raises:
        NotFoundError: there is no such search.
        RequestError: the cursor is that of another list.
    """
    sort, descending = sorting(query.sort)
    search_id = None
    if query.search is not None:
        search_id = searches.get_search(session, query.search).id
    wanted = DistillationFilter(
        status=tuple(query.status),
        owner_kind=query.owner_kind,
        architecture=query.architecture,
        objective=query.objective,
        search_id=search_id,
    )
    return distillation_pages.list_distillations(
        session,
        wanted,
        sort=sort,
        descending=descending,
        limit=query.limit,
        cursor=query.cursor,
    )


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
    points = distillation_pages.curve_rows(session, found.id)
    readings = distillations.distillation_readings(session, found.id)
    return {
        "points": [
            {"step": step, "loss": loss, "learning_rate": rate}
            for step, loss, rate in evenly(points, limit)
        ],
        "held_out": [
            {
                "step": reading.step,
                **{name: getattr(reading.losses, name) for name in distillation_pages.LOSSES},
            }
            for reading in evenly(readings, limit)
        ],
    }

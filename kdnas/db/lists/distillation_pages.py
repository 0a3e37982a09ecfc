"""Distillations as a list, and one with its losses; its curve as plain rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Distillation, DistillationCurvePoint, DistillationReading
from kdnas.db.records import OwnerKind
from kdnas.records import SearchStatus

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": Distillation.created_at,
    "name": Distillation.name,
    "status": Distillation.status,
    "architecture": Distillation.architecture,
    "finished_at": Distillation.finished_at,
}

LOSSES = ("training", "mean", "relative", "output")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DistillationFilter:
    """Which distillations are wanted.

    Attributes:
        status: one of these.
        owner_kind: whose they are.
        architecture: exactly this one.
        objective: name of the objective, such as ``hs``.
        search_id: the search that they were asked from.
    """

    status: Sequence[SearchStatus] = ()
    owner_kind: OwnerKind | None = None
    architecture: str | None = None
    objective: str | None = None
    search_id: str | None = None


def list_distillations(
    session: Session,
    wanted: DistillationFilter,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of distillations without their specs, with their losses so far.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = select(*_columns())
    if wanted.status:
        query = query.where(Distillation.status.in_(wanted.status))
    if wanted.owner_kind is not None:
        query = query.where(Distillation.owner_kind == wanted.owner_kind)
    if wanted.architecture is not None:
        query = query.where(Distillation.architecture == wanted.architecture)
    if wanted.objective is not None:
        named = Distillation.spec["objective"]["name"].as_string()
        query = query.where(named == wanted.objective)
    if wanted.search_id is not None:
        query = query.where(Distillation.search_id == wanted.search_id)
    scope = {"list": "distillations", "sort": sort, "descending": descending, **asdict(wanted)}
    order = Order(SORTS[sort], Distillation.id, descending)
    page = as_dicts(read_page(session, query, order, scope, limit, cursor))
    return PageOf(_with_losses(session, page.items), page.next_cursor)


def read_distillation(session: Session, distillation_id: str) -> Row:
    """Read one distillation as the list has it, with its ``spec``; it has to be there."""
    query = select(*_columns(), Distillation.spec.label("spec"))
    query = query.where(Distillation.id == distillation_id)
    row = session.execute(query).one()
    (found,) = _with_losses(session, [dict(row._mapping)])
    return found


def read_distillations(session: Session, ids: Collection[str]) -> list[Row]:
    """Read distillations as the list has them."""
    query = select(*_columns()).where(Distillation.id.in_(ids)).order_by(Distillation.id)
    return _with_losses(session, [dict(row._mapping) for row in session.execute(query)])


def curve_rows(session: Session, distillation_id: str) -> list[tuple[int, float, float]]:
    """Step, loss and learning rate of each point, in order."""
    query = (
        select(
            DistillationCurvePoint.step,
            DistillationCurvePoint.loss,
            DistillationCurvePoint.learning_rate,
        )
        .where(DistillationCurvePoint.distillation_id == distillation_id)
        .order_by(DistillationCurvePoint.step)
    )
    return [(step, loss, rate) for step, loss, rate in session.execute(query)]


def _columns() -> list[Any]:
    return [
        Distillation.id,
        Distillation.name,
        Distillation.status,
        Distillation.owner_kind,
        Distillation.architecture,
        Distillation.search_id,
        func.coalesce(Distillation.done, 0).label("step"),
        Distillation.total.label("total_steps"),
        Distillation.metrics,
        Distillation.output_path.label("output"),
        Distillation.error,
        Distillation.created_at,
        Distillation.started_at,
        Distillation.finished_at,
    ]


def _with_losses(session: Session, rows: Sequence[Row]) -> list[Row]:
    """Give each the losses of its result, or of its newest reading, or None."""
    newest = _newest_readings(session, [row["id"] for row in rows])
    found = []
    for row in rows:
        metrics = row.pop("metrics")
        losses: Row | None
        if metrics and all(name in metrics for name in LOSSES):
            losses = {name: metrics[name] for name in ("step", *LOSSES) if name in metrics}
        else:
            losses = newest.get(row["id"])
        found.append({**row, "losses": losses})
    return found


def _newest_readings(session: Session, ids: Sequence[str]) -> dict[str, Row]:
    last = (
        select(
            DistillationReading.distillation_id, func.max(DistillationReading.step).label("step")
        )
        .where(DistillationReading.distillation_id.in_(ids))
        .group_by(DistillationReading.distillation_id)
        .subquery()
    )
    query = select(DistillationReading).join(
        last,
        (DistillationReading.distillation_id == last.c.distillation_id)
        & (DistillationReading.step == last.c.step),
    )
    return {
        reading.distillation_id: {
            "step": reading.step,
            **{name: getattr(reading, f"loss_{name}") for name in LOSSES},
        }
        for reading in session.scalars(query)
    }

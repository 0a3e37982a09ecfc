"""Evaluations as a list, one with its spec, and the models that have any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Distillation, Evaluation
from kdnas.db.records import OwnerKind
from kdnas.records import SearchStatus

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": Evaluation.created_at,
    "model": Evaluation.model,
    "suite": Evaluation.suite,
    "task": Evaluation.task,
    "seed": Evaluation.seed,
    "status": Evaluation.status,
    "finished_at": Evaluation.finished_at,
}

FIGURES = ("metrics", "official_split", "notes", "seconds", "steps")
"""What a row tells of its result, by the names of ``kdnas.evaluation.results.TaskResult``."""

MOST_MODELS = 500

Row = dict[str, Any]

MadeBy = aliased(Distillation, flat=True)


@dataclass(frozen=True, slots=True)
class EvaluationFilter:
    """Which evaluations are wanted."""

    status: Sequence[SearchStatus] = ()
    owner_kind: OwnerKind | None = None
    model: str | None = None
    suite: str | None = None
    task: str | None = None
    distillation_id: str | None = None


def list_evaluation_page(
    session: Session,
    wanted: EvaluationFilter,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of evaluations without their specs.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = select(*_columns()).outerjoin(MadeBy, MadeBy.id == Evaluation.distillation_id)
    if wanted.status:
        query = query.where(Evaluation.status.in_(wanted.status))
    for column, value in (
        (Evaluation.owner_kind, wanted.owner_kind),
        (Evaluation.model, wanted.model),
        (Evaluation.suite, wanted.suite),
        (Evaluation.task, wanted.task),
        (Evaluation.distillation_id, wanted.distillation_id),
    ):
        if value is not None:
            query = query.where(column == value)
    scope = {"list": "evaluations", "sort": sort, "descending": descending, **asdict(wanted)}
    order = Order(SORTS[sort], Evaluation.id, descending)
    page = as_dicts(read_page(session, query, order, scope, limit, cursor))
    return PageOf([_with_figures(row) for row in page.items], page.next_cursor)


def read_evaluation_rows(session: Session, ids: Sequence[str]) -> list[Row]:
    """Read evaluations as the list has them, with their ``spec``, in the order of their ids."""
    query = (
        select(*_columns(), Evaluation.requested, Evaluation.resolved)
        .outerjoin(MadeBy, MadeBy.id == Evaluation.distillation_id)
        .where(Evaluation.id.in_(ids))
        .order_by(Evaluation.id)
    )
    return [_with_request(_with_figures(dict(row._mapping))) for row in session.execute(query)]


def list_evaluated_models(session: Session) -> list[Row]:
    """Every model and suite with how many evaluations there are, the newest first."""
    last = func.max(Evaluation.id)
    query = (
        select(
            Evaluation.model,
            Evaluation.suite,
            Evaluation.distillation_id,
            func.max(MadeBy.name).label("distillation_name"),
            func.count().label("num_evaluations"),
            func.sum(_is("succeeded")).label("num_succeeded"),
            func.sum(_is("queued", "running")).label("num_unfinished"),
        )
        .outerjoin(MadeBy, MadeBy.id == Evaluation.distillation_id)
        .group_by(Evaluation.model, Evaluation.suite, Evaluation.distillation_id)
        .order_by(last.desc())
        .limit(MOST_MODELS)
    )
    return [dict(row._mapping) for row in session.execute(query)]


def _share() -> Any:
    """How much of the training is done, 0 to 1."""
    return func.coalesce(1.0 * Evaluation.done / func.nullif(Evaluation.total, 0), 0.0)


def _is(*statuses: str) -> Any:
    return case((Evaluation.status.in_(statuses), 1), else_=0)


def _columns() -> list[Any]:
    return [
        Evaluation.id,
        Evaluation.model,
        Evaluation.distillation_id,
        MadeBy.name.label("distillation_name"),
        Evaluation.suite,
        Evaluation.task,
        Evaluation.seed,
        Evaluation.status,
        Evaluation.owner_kind,
        _share().label("share"),
        Evaluation.metrics.label("result"),
        Evaluation.error,
        Evaluation.created_at,
        Evaluation.started_at,
        Evaluation.finished_at,
    ]


def _with_figures(row: Row) -> Row:
    """Put the figures of the result, None before there are any, in its place."""
    result = row.pop("result")
    figures = {name: result.get(name) for name in FIGURES}
    return {**row, "score": result.get("main"), **figures}


def _with_request(row: Row) -> Row:
    """Show what was asked for and what it was resolved to as one document."""
    requested, resolved = row.pop("requested"), row.pop("resolved")
    asked = {} if requested == resolved else {"request": requested}
    return {**row, "spec": {**asked, **(resolved or {})}}

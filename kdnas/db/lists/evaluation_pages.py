"""Evaluations in lists, each with the figures of its result, and the models that have any."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session, aliased

from kdnas.db.lists.job_pages import Listing, Row, equal_to, reference_to
from kdnas.db.models import Distillation, Evaluation, Job

FIGURES = ("metrics", "official_split", "notes", "seconds", "steps")
"""What a row tells of its result, by the names of ``kdnas.evaluation.results.TaskResult``."""

MOST_MODELS = 500

MadeBy = aliased(Job, flat=True)


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


def _is(*statuses: str) -> Any:
    return case((Evaluation.status.in_(statuses), 1), else_=0)


def _with_figures(session: Session, rows: list[Row]) -> list[Row]:
    """Put the figures of each result, None before there are any, in its place."""
    return [
        {
            **row,
            "score": row["metrics"].get("main"),
            **{name: row["metrics"].get(name) for name in FIGURES},
        }
        for row in rows
    ]


def _with_request(session: Session, rows: list[Row]) -> list[Row]:
    """Show what was asked for and what it was resolved to as one document."""
    return [{**row, "spec": _document(row["requested"], row["resolved"])} for row in rows]


def _document(requested: Row, resolved: Row | None) -> Row:
    return ({} if requested == resolved else {"request": requested}) | (resolved or {})


LISTING: Final = Listing(
    Evaluation,
    columns={
        "model": Evaluation.model,
        "distillation_id": Evaluation.distillation_id,
        "distillation_name": select(MadeBy.name)
        .where(MadeBy.id == Evaluation.distillation_id)
        .scalar_subquery(),
        "suite": Evaluation.suite,
        "task": Evaluation.task,
        "seed": Evaluation.seed,
        "metrics": Evaluation.metrics,
    },
    sorts={
        "model": Evaluation.model,
        "suite": Evaluation.suite,
        "task": Evaluation.task,
        "seed": Evaluation.seed,
    },
    filters={
        "model": equal_to(Evaluation.model),
        "suite": equal_to(Evaluation.suite),
        "task": equal_to(Evaluation.task),
        "distillation": reference_to(Distillation, Evaluation.distillation_id),
    },
    complete=_with_figures,
    detail=_with_request,
)
"""The list of evaluations; what its result says is None before there is one."""

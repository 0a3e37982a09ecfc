"""Distillations for one task as a list, and the runs of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from kdnas.db.lists.job_pages import Listing, Row, equal_to
from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Grid, TaskDistillation, TaskDistillationRun
from kdnas.db.repository import grids, task_distillations
from kdnas.db.repository.task_distillations import RUN_FIELDS
from kdnas.records import TaskFacts


def _of_requests(session: Session, rows: list[Row]) -> list[Row]:
    """Lists for what a request of an older program has not."""
    return [{**row, "methods": row["methods"] or [], "seeds": row["seeds"] or []} for row in rows]


def _with_facts(session: Session, rows: list[Row]) -> list[Row]:
    found = ((row, task_distillations.task_facts(session, row["id"])) for row in rows)
    return [{**row, **_told(session, facts)} for row, facts in found]


def _told(session: Session, facts: TaskFacts | None) -> Row:
    """Facts, warnings, and the grids as they are by now."""
    if facts is None:
        return {"facts": None, "grids": [], "warnings": []}
    told = {name: value for name, value in facts.to_json().items() if name != "grids"}
    tried = [
        _grid(method, grid["points"], grids.read_grid(session, grid["key"]))
        for method, grid in facts.grids.items()
    ]
    return {"facts": told, "grids": tried, "warnings": list(facts.warnings)}


def _grid(method: str, points: int, known: Grid | None) -> Row:
    trials = [] if known is None else [_trial(trial) for trial in known.trials]
    chosen = None if known is None or known.chosen is None else _trial(known.chosen)
    return {"method": method, "points": points, "trials": trials, "chosen": chosen}


def _trial(trial: Mapping[str, Any]) -> Row:
    return {**trial["point"], "held_out": trial["held_out"], "ending": trial["ending"]}


LISTING: Final = Listing(
    TaskDistillation,
    columns={
        "task": TaskDistillation.task,
        "student": TaskDistillation.student,
        "teacher": TaskDistillation.spec["teacher"]["ref"].as_string(),
        "methods": TaskDistillation.spec["methods"],
        "seeds": TaskDistillation.spec["seeds"],
        "output": TaskDistillation.spec["output"].as_string(),
    },
    sorts={"task": TaskDistillation.task},
    filters={
        "task": equal_to(TaskDistillation.task),
        "student": equal_to(TaskDistillation.student),
    },
    complete=_of_requests,
    detail=_with_facts,
)
"""The list of distillations for a task; one in full has its facts, grids and warnings."""


def list_runs(
    session: Session,
    job_id: str,
    wanted: Mapping[str, Sequence[Any]],
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[dict[str, Any]]:
    """Read a page of the runs of one, by method and seed.

    Args:
        session: to read with.
        job_id: of the job.
        wanted: ``method`` or ``seed`` → those that are wanted.
        limit: length of the page.
        cursor: of the page before.

    Raises:
        RequestError: the cursor is that of another list.
    """
    columns = [getattr(TaskDistillationRun, name) for name in (*RUN_FIELDS, "finished_at")]
    query = select(*columns).where(TaskDistillationRun.task_distillation_id == job_id)
    for name, values in wanted.items():
        query = query.where(getattr(TaskDistillationRun, name).in_(values))
    # Within a job the two together are unique, which is all that a page needs.
    order = Order(TaskDistillationRun.method, TaskDistillationRun.seed)
    scope = {"list": "runs", "job": job_id, **{k: sorted(v) for k, v in wanted.items()}}
    return as_dicts(read_page(session, query, order, scope, limit, cursor))

"""Pipelines in lists, with how much of each is done, and the members of one; plain rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kdnas.db.lists import distillation_pages
from kdnas.db.lists.job_pages import Listing, Row, read_jobs
from kdnas.db.models import (
    Distillation,
    Evaluation,
    Job,
    Pipeline,
    PipelineMember,
    TaskDistillation,
)
from kdnas.db.records import MemberFigures
from kdnas.db.repository import task_distillations

_SCORE: Final = ("id", "suite", "task", "seed", "status", "done", "total", "error")
"""What a member tells of each of its evaluations, besides the score."""

_STEP: Final = ("id", "name", "task", "status", "done", "total", "error")
"""What a member tells of each distillation for a task, besides method, score and metric."""

Found = aliased(Job, flat=True)


def _with_counts(session: Session, rows: list[Row]) -> list[Row]:
    """Add how many students, evaluations and distillations for tasks each has, and are done."""
    ids = [row["id"] for row in rows]
    students = _counts(
        session,
        ids,
        select(PipelineMember.pipeline_id, func.count(), _sum(Distillation.status))
        .outerjoin(Distillation, Distillation.id == PipelineMember.distillation_id)
        .where(PipelineMember.architecture.is_not(None), PipelineMember.role != "undistilled"),
    )
    scores = _counts(
        session,
        ids,
        select(PipelineMember.pipeline_id, func.count(), _sum(Evaluation.status)).join(
            Evaluation, Evaluation.pipeline_member_id == PipelineMember.id
        ),
    )

    steps = {
        row[0]: (row[1], int(row[2] or 0))
        for row in session.execute(
            select(TaskDistillation.parent_id, func.count(), _sum(TaskDistillation.status))
            .where(TaskDistillation.parent_id.in_(ids))
            .group_by(TaskDistillation.parent_id)
        )
    }

    def counts(pipeline_id: str) -> list[int]:
        return [n for each in (students, scores, steps) for n in each.get(pipeline_id, (0, 0))]

    names = ["num_students", "num_distilled", "num_evaluations", "num_evaluated"]
    names += ["num_task_distillations", "num_task_distilled"]
    return [{**row, **dict(zip(names, counts(row["id"]), strict=True))} for row in rows]


def _counts(session: Session, ids: Collection[str], query: Any) -> dict[str, tuple[int, int]]:
    query = query.where(PipelineMember.pipeline_id.in_(ids)).group_by(PipelineMember.pipeline_id)
    return {row[0]: (row[1], int(row[2] or 0)) for row in session.execute(query)}


def _sum(status: InstrumentedAttribute[str]) -> Any:
    return func.sum(case((status == "succeeded", 1), else_=0))


def _with_members(session: Session, rows: list[Row]) -> list[Row]:
    return [{**row, "members": _members(session, row["id"])} for row in rows]


def _members(session: Session, pipeline_id: str) -> list[Row]:
    """Read the models of a pipeline, each with its distillation in a list and its scores."""
    query = (
        select(PipelineMember)
        .where(PipelineMember.pipeline_id == pipeline_id)
        .order_by(PipelineMember.position)
    )
    members = session.scalars(query).all()
    made = [member.distillation_id for member in members if member.distillation_id is not None]
    distilled = {row["id"]: row for row in read_jobs(session, made, distillation_pages.LISTING)}
    scores = _scores(session, [member.id for member in members])
    steps = _steps(session, pipeline_id)
    return [
        {
            "id": member.id,
            "position": member.position,
            "role": member.role,
            "reasons": member.reasons,
            "architecture": member.architecture,
            "figures": asdict(MemberFigures(**member.figures)),
            "distillation": distilled.get(member.distillation_id),
            "evaluations": scores[member.id],
            "task_distillations": steps.get(_student(distilled.get(member.distillation_id)), []),
        }
        for member in members
    ]


def _scores(session: Session, member_ids: Collection[str]) -> defaultdict[str, list[Row]]:
    columns = [getattr(Evaluation, name) for name in _SCORE]
    query = (
        select(Evaluation.pipeline_member_id, Evaluation.metrics, *columns)
        .where(Evaluation.pipeline_member_id.in_(member_ids))
        .order_by(Evaluation.id)
    )
    found = defaultdict(list)
    for member_id, metrics, *values in session.execute(query):
        score = {**dict(zip(_SCORE, values, strict=True)), "score": metrics.get("main")}
        found[member_id].append(score)
    return found


def _student(made: Row | None) -> str | None:
    """The whole path of a student, by which distillations for tasks have it."""
    return str(Path(made["output"]).absolute()) if made is not None and made["output"] else None


def _steps(session: Session, pipeline_id: str) -> dict[str | None, list[Row]]:
    """Student → the distillations for tasks that the pipeline has asked for."""
    query = (
        select(TaskDistillation)
        .where(TaskDistillation.parent_id == pipeline_id)
        .order_by(TaskDistillation.id)
    )
    rows = session.scalars(query).all()
    scores = task_distillations.mean_scores(session, [row.id for row in rows])
    found: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        step = {name: getattr(row, name) for name in _STEP}
        step["method"] = row.requested["methods"][0]
        step["metric"] = None if row.facts is None else row.facts["metric"]
        found[row.student].append({**step, "score": scores.get(row.id)})
    return found


LISTING: Final = Listing(
    Pipeline,
    columns={
        "stage": Pipeline.stage,
        "search_id": Pipeline.search_id,
        "search_name": select(Found.name).where(Found.id == Pipeline.search_id).scalar_subquery(),
        "search_status": select(Found.status)
        .where(Found.id == Pipeline.search_id)
        .scalar_subquery(),
        "notes": Pipeline.notes,
    },
    sorts={"stage": Pipeline.stage},
    complete=_with_counts,
    detail=_with_members,
)
"""The list of pipelines; one in full has its members."""

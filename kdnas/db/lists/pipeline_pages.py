"""Pipelines as a list, and one with its members; plain rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kdnas.db.lists import distillation_pages
from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Distillation, Evaluation, Pipeline, PipelineMember, Search
from kdnas.db.records import EvaluationRecord, MemberRecord, OwnerKind
from kdnas.db.repository.pipelines import list_members
from kdnas.records import SearchStatus

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "created_at": Pipeline.created_at,
    "name": Pipeline.name,
    "status": Pipeline.status,
    "stage": Pipeline.stage,
    "finished_at": Pipeline.finished_at,
}

Row = dict[str, Any]

Found = aliased(Search, flat=True)


@dataclass(frozen=True, slots=True)
class PipelineFilter:
    """Which pipelines are wanted; ``q`` is a part of the name, in capitals or not."""

    status: Sequence[SearchStatus] = ()
    owner_kind: OwnerKind | None = None
    q: str | None = None


def list_pipeline_page(
    session: Session,
    wanted: PipelineFilter,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of pipelines without their specs, with how much of each is done.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = select(*_columns()).outerjoin(Found, Found.id == Pipeline.search_id)
    if wanted.status:
        query = query.where(Pipeline.status.in_(wanted.status))
    if wanted.owner_kind is not None:
        query = query.where(Pipeline.owner_kind == wanted.owner_kind)
    if wanted.q is not None:
        query = query.where(func.lower(Pipeline.name).contains(wanted.q.lower(), autoescape=True))
    scope = {"list": "pipelines", "sort": sort, "descending": descending, **asdict(wanted)}
    order = Order(SORTS[sort], Pipeline.id, descending)
    page = as_dicts(read_page(session, query, order, scope, limit, cursor))
    return PageOf(_with_counts(session, page.items), page.next_cursor)


def read_pipeline(session: Session, pipeline_id: str) -> Row:
    """Read one pipeline as the list has it, with its spec, notes and members; it has to be there.

    A member has its distillation as the list of distillations has it, and its evaluations short.
    """
    query = (
        select(*_columns(), Pipeline.notes, Pipeline.spec.label("spec"))
        .outerjoin(Found, Found.id == Pipeline.search_id)
        .where(Pipeline.id == pipeline_id)
    )
    (row,) = _with_counts(session, [dict(session.execute(query).one()._mapping)])
    members = list_members(session, pipeline_id)
    made = [m.distillation.id for m in members if m.distillation is not None]
    rows = {one["id"]: one for one in distillation_pages.read_distillations(session, made)}
    return {**row, "members": [_member(member, rows) for member in members]}


def _columns() -> list[Any]:
    return [
        Pipeline.id,
        Pipeline.name,
        Pipeline.status,
        Pipeline.owner_kind,
        Pipeline.stage,
        Pipeline.search_id,
        Found.name.label("search_name"),
        Found.status.label("search_status"),
        Pipeline.error,
        Pipeline.created_at,
        Pipeline.started_at,
        Pipeline.finished_at,
    ]


def _with_counts(session: Session, rows: Sequence[Row]) -> list[Row]:
    """Add how many students and evaluations each has, and how many of them are done."""
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
    found = []
    for row in rows:
        num_students, num_distilled = students.get(row["id"], (0, 0))
        num_evaluations, num_evaluated = scores.get(row["id"], (0, 0))
        counts = {
            "num_students": num_students,
            "num_distilled": num_distilled,
            "num_evaluations": num_evaluations,
            "num_evaluated": num_evaluated,
        }
        found.append({**row, **counts})
    return found


def _counts(session: Session, ids: Collection[str], query: Any) -> dict[str, tuple[int, int]]:
    query = query.where(PipelineMember.pipeline_id.in_(ids)).group_by(PipelineMember.pipeline_id)
    return {row[0]: (row[1], int(row[2] or 0)) for row in session.execute(query)}


def _sum(status: InstrumentedAttribute[str]) -> Any:
    return func.sum(case((status == "succeeded", 1), else_=0))


def _member(member: MemberRecord, distilled: Mapping[str, Row]) -> Row:
    made = member.distillation
    return {
        "id": member.id,
        "position": member.position,
        "role": member.role,
        "reasons": [asdict(reason) for reason in member.reasons],
        "architecture": None if member.architecture is None else str(member.architecture),
        "figures": asdict(member.figures),
        "distillation": None if made is None else distilled[made.id],
        "evaluations": [_score(one) for one in member.evaluations],
    }


def _score(evaluation: EvaluationRecord) -> Row:
    return {
        "id": evaluation.id,
        "suite": evaluation.suite,
        "task": evaluation.task,
        "seed": evaluation.seed,
        "status": evaluation.status,
        "share": evaluation.share,
        "score": evaluation.metrics.get("main"),
        "error": evaluation.error,
    }

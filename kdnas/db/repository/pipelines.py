"""Pipelines and their members: create, find, list, change.

What comes next in a pipeline is decided elsewhere, from these rows alone. Whoever changes a
pipeline locks its row first and those of its parts after it, all of them before the first event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kdnas.architecture import Architecture
from kdnas.db.base import utc_now
from kdnas.db.models import (
    FINAL_STATUSES,
    Distillation,
    Evaluation,
    Event,
    Pipeline,
    PipelineMember,
    Search,
)
from kdnas.db.records import (
    MemberFigures,
    MemberRecord,
    NewMember,
    OwnerKind,
    PipelineRecord,
    Reason,
)
from kdnas.db.repository.distillations import distillations_of, set_distillation_status
from kdnas.db.repository.evaluations import evaluations_of, set_evaluation_status
from kdnas.db.repository.events import ROW_LOCK, append_event
from kdnas.db.repository.names import add_named, find_named, refuse_taken_name
from kdnas.db.repository.searches import set_search_status
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import MemberRole, PipelineStage, SearchStatus

Part = Search | Distillation | Evaluation


def create_pipeline(
    session: Session,
    spec: Mapping[str, Any],
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
) -> PipelineRecord:
    """Write a queued pipeline, with an event.

    Raises:
        ConflictError: the name is taken.
    """
    values: dict[str, Any] = {
        "spec": dict(spec),
        "owner_kind": owner_kind,
        "status": "queued",
        "stage": "search",
        "notes": [],
    }
    row = add_named(session, Pipeline, name, values)
    append_event(session, "pipeline_created", {"name": row.name}, pipeline_id=row.id)
    return _record(row)


def get_pipeline(session: Session, reference: str) -> PipelineRecord:
    """Read a pipeline by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    row = find_named(session, Pipeline, reference)
    if row is None:
        raise NotFoundError(_unknown(reference))
    return _record(row)


def refuse_taken_pipeline(session: Session, name: str) -> None:
    """Raise ConflictError if a pipeline has this name."""
    refuse_taken_name(session, Pipeline, name)


def list_pipelines(
    session: Session,
    *,
    statuses: Collection[SearchStatus] = (),
    owner_kind: OwnerKind | None = None,
    limit: int = 100,
) -> list[PipelineRecord]:
    """Pipelines, the newest first."""
    query = select(Pipeline).order_by(Pipeline.id.desc()).limit(limit)
    if statuses:
        query = query.where(Pipeline.status.in_(statuses))
    if owner_kind is not None:
        query = query.where(Pipeline.owner_kind == owner_kind)
    return [_record(row) for row in session.scalars(query)]


def set_pipeline_status(
    session: Session, pipeline_id: str, status: SearchStatus, error: str | None = None
) -> PipelineRecord:
    """Change a pipeline's status, with an event; its parts are left as they are.

    Raises:
        NotFoundError: no such pipeline.
    """
    row = locked_pipeline(session, pipeline_id)
    now = utc_now()
    row.status, row.error = status, error
    if status == "running" and row.started_at is None:
        row.started_at = now
    row.finished_at = now if status in FINAL_STATUSES else None
    payload = {"status": status, "error": error}
    append_event(session, "pipeline_status", payload, pipeline_id=row.id)
    return _record(row)


def set_pipeline_stage(session: Session, pipeline_id: str, stage: PipelineStage) -> None:
    """Note how far a pipeline is, with an event.

    Raises:
        NotFoundError: no such pipeline.
    """
    row = locked_pipeline(session, pipeline_id)
    row.stage = stage
    append_event(session, "pipeline_stage", {"stage": stage}, pipeline_id=row.id)


def set_pipeline_spec(session: Session, pipeline_id: str, spec: Mapping[str, Any]) -> None:
    """Store a pipeline's request anew.

    Raises:
        NotFoundError: no such pipeline.
    """
    locked_pipeline(session, pipeline_id).spec = dict(spec)
    session.flush()


def set_pipeline_search(session: Session, pipeline_id: str, search_id: str) -> None:
    """Note which search is a pipeline's.

    Raises:
        NotFoundError: no such pipeline.
    """
    locked_pipeline(session, pipeline_id).search_id = search_id
    session.flush()


def add_members(
    session: Session, pipeline_id: str, members: Iterable[NewMember], notes: Sequence[str] = ()
) -> list[str]:
    """Write a pipeline's members in their order, with an event; returns their ids.

    Args:
        session: of a write transaction.
        pipeline_id: which has none yet.
        members: the models.
        notes: what a reader of the results should know of the choice.

    Raises:
        NotFoundError: no such pipeline.
    """
    row = locked_pipeline(session, pipeline_id)
    row.notes = [*row.notes, *notes]
    added = [
        PipelineMember(
            pipeline_id=row.id,
            position=position,
            role=member.reasons[0].role,
            architecture=None if member.architecture is None else str(member.architecture),
            reasons=[asdict(reason) for reason in member.reasons],
            figures=asdict(member.figures),
            variant=None if member.variant is None else dict(member.variant),
        )
        for position, member in enumerate(members, 1)
    ]
    session.add_all(added)
    session.flush()
    payload = {
        "members": [
            {"id": one.id, "role": one.role, "architecture": one.architecture} for one in added
        ]
    }
    append_event(session, "pipeline_members", payload, pipeline_id=row.id)
    return [one.id for one in added]


def set_member_distillation(session: Session, member_id: str, distillation_id: str) -> None:
    """Note which distillation makes a member's model."""
    session.get_one(PipelineMember, member_id).distillation_id = distillation_id
    session.flush()


def list_members(session: Session, pipeline_id: str) -> list[MemberRecord]:
    """A pipeline's members in their order, with where their parts stand."""
    query = (
        select(PipelineMember)
        .where(PipelineMember.pipeline_id == pipeline_id)
        .order_by(PipelineMember.position)
    )
    rows = list(session.scalars(query))
    distilled = distillations_of(session, [r.distillation_id for r in rows if r.distillation_id])
    scored = evaluations_of(session, [row.id for row in rows])
    return [
        MemberRecord(
            id=row.id,
            pipeline_id=row.pipeline_id,
            position=row.position,
            role=cast(MemberRole, row.role),
            reasons=tuple(Reason(**reason) for reason in row.reasons),
            architecture=None if row.architecture is None else Architecture.parse(row.architecture),
            figures=MemberFigures(**row.figures),
            variant=row.variant,
            distillation=distilled.get(row.distillation_id or ""),
            evaluations=tuple(scored.get(row.id, ())),
        )
        for row in rows
    ]


def delete_pipeline(session: Session, pipeline_id: str) -> None:
    """Delete a pipeline; its search, students and scores are kept, and what waits is cancelled.

    Raises:
        NotFoundError: no such pipeline.
        ConflictError: it is running.
    """
    row = locked_pipeline(session, pipeline_id)
    if row.status == "running":
        raise ConflictError(f"pipeline {row.name!r} is running; cancel it before deleting it")
    for part in locked_parts(session, row):
        if part.status in {"queued", "running", "paused"}:
            set_part_status(session, part, "cancelled")
    own = (
        Event.pipeline_id == row.id,
        Event.search_id.is_(None),
        Event.distillation_id.is_(None),
    )
    session.execute(delete(Event).where(*own))
    session.execute(delete(Pipeline).where(Pipeline.id == row.id))


def require_pipeline(session: Session, pipeline_id: str) -> None:
    """Raise NotFoundError unless there is a pipeline with this id."""
    if session.scalar(select(Pipeline.id).where(Pipeline.id == pipeline_id)) is None:
        raise NotFoundError(_unknown(pipeline_id))


def locked_pipeline(session: Session, pipeline_id: str) -> Pipeline:
    """The row of a pipeline, kept from other writers until the end of the transaction."""
    row = session.get(Pipeline, pipeline_id, with_for_update=ROW_LOCK, populate_existing=True)
    if row is None:
        raise NotFoundError(_unknown(pipeline_id))
    return row


def locked_parts(session: Session, pipeline: Pipeline) -> list[Part]:
    """The search, distillations and evaluations of a pipeline, all of them locked."""
    members = select(PipelineMember).where(PipelineMember.pipeline_id == pipeline.id)
    found = list(session.scalars(members))
    distilled = [one.distillation_id for one in found]
    wanted: list[tuple[Any, Any]] = [
        (Search, Search.id == pipeline.search_id),
        (Distillation, Distillation.id.in_([one for one in distilled if one])),
        (Evaluation, Evaluation.pipeline_member_id.in_([one.id for one in found])),
    ]
    parts: list[Part] = []
    for table, condition in wanted:
        query = select(table).where(condition).order_by(table.id)
        locking = query.with_for_update(key_share=ROW_LOCK["key_share"])
        parts += session.scalars(locking.execution_options(populate_existing=True))
    return parts


def set_part_status(session: Session, part: Part, status: SearchStatus) -> None:
    """Change the status of a part of a pipeline, with an event."""
    if isinstance(part, Search):
        set_search_status(session, part.id, status)
    elif isinstance(part, Distillation):
        set_distillation_status(session, part.id, status)
    else:
        set_evaluation_status(session, part.id, status)


def _unknown(reference: str) -> str:
    return f"there is no pipeline {reference!r}; `kdnas pipelines list` shows all pipelines"


def _record(row: Pipeline) -> PipelineRecord:
    return PipelineRecord(
        id=row.id,
        name=row.name,
        spec=row.spec,
        status=cast(SearchStatus, row.status),
        owner_kind=cast(OwnerKind, row.owner_kind),
        stage=cast(PipelineStage, row.stage),
        search_id=row.search_id,
        notes=tuple(row.notes),
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )

"""Pipelines and their members: create, find, list, change.

What comes next in a pipeline is decided elsewhere, from these rows alone. Whoever changes a
pipeline locks its row first and those of its parts after it, all of them before the first event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from kdnas.architecture import Architecture
from kdnas.db.models import Pipeline, PipelineMember
from kdnas.db.records import (
    MemberFigures,
    MemberRecord,
    NewMember,
    OwnerKind,
    PipelineRecord,
    Reason,
    TaskDistillationRecord,
    record_of,
)
from kdnas.db.repository import task_distillations
from kdnas.db.repository.distillations import distillation_record
from kdnas.db.repository.evaluations import evaluation_record
from kdnas.db.repository.events import append_event
from kdnas.db.repository.jobs import add_job, get_job, locked_job, newest_jobs
from kdnas.records import PipelineStage, SearchStatus


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
    row = add_job(
        session, Pipeline, spec, name=name, owner_kind=owner_kind, stage="search", notes=[]
    )
    return record_of(row, PipelineRecord)


def get_pipeline(session: Session, reference: str) -> PipelineRecord:
    """Read a pipeline by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return record_of(get_job(session, reference, Pipeline), PipelineRecord)


def list_pipelines(
    session: Session,
    *,
    statuses: Collection[SearchStatus] = (),
    owner_kind: OwnerKind,
    limit: int | None = 100,
) -> list[PipelineRecord]:
    """Pipelines of the service, or of the command line, the newest first; None is all of them."""
    own = Pipeline.owner_kind == owner_kind
    found = newest_jobs(session, Pipeline, own, statuses=statuses, limit=limit)
    return [record_of(row, PipelineRecord) for row in found]


def set_pipeline_stage(session: Session, pipeline_id: str, stage: PipelineStage) -> None:
    """Note how far a pipeline is, with an event.

    Raises:
        NotFoundError: no such pipeline.
    """
    row = locked_job(session, pipeline_id, Pipeline)
    row.stage = stage
    append_event(session, "pipeline_stage", {"stage": stage}, job_id=row.id)


def set_pipeline_search(session: Session, pipeline_id: str, search_id: str) -> None:
    """Note which search is a pipeline's.

    Raises:
        NotFoundError: no such pipeline.
    """
    locked_job(session, pipeline_id, Pipeline).search_id = search_id
    locked_job(session, search_id).parent_id = pipeline_id


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
    row = locked_job(session, pipeline_id, Pipeline)
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
    append_event(session, "pipeline_members", payload, job_id=row.id)
    return [one.id for one in added]


def set_member_distillation(session: Session, member_id: str, distillation_id: str) -> None:
    """Note which distillation makes a member's model."""
    member = session.get_one(PipelineMember, member_id)
    member.distillation_id = distillation_id
    locked_job(session, distillation_id).parent_id = member.pipeline_id


def list_members(session: Session, pipeline_id: str) -> list[MemberRecord]:
    """A pipeline's members in their order, with where their parts stand."""
    parts = (PipelineMember.distillation, PipelineMember.evaluations)
    query = (
        select(PipelineMember)
        .where(PipelineMember.pipeline_id == pipeline_id)
        .order_by(PipelineMember.position)
        .options(*map(selectinload, parts))
        .execution_options(populate_existing=True)
    )
    taught: dict[str, list[TaskDistillationRecord]] = defaultdict(list)
    for one in task_distillations.asked_for_by(session, pipeline_id):
        taught[one.student].append(one)
    return [_member(row, taught) for row in session.scalars(query)]


def _member(
    row: PipelineMember, taught: Mapping[str, Sequence[TaskDistillationRecord]]
) -> MemberRecord:
    """Read a member; which distillations for tasks are its own is told by the student's folder."""
    made = None if row.distillation is None else distillation_record(row.distillation)
    student = None if made is None else made.student
    return record_of(
        row,
        MemberRecord,
        reasons=tuple(Reason(**reason) for reason in row.reasons),
        architecture=row.architecture and Architecture.parse(row.architecture),
        figures=MemberFigures(**row.figures),
        distillation=made,
        evaluations=tuple(map(evaluation_record, row.evaluations)),
        task_distillations=() if student is None else tuple(taught.get(student, ())),
    )

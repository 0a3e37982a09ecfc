"""Cancelling a distillation or a pipeline: at once, or by the process that works on it."""

from __future__ import annotations

from dataclasses import dataclass

from api.jobs.files import remove_evaluation_checkpoints, remove_run_files
from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Evaluation, Pipeline
from kdnas.db.records import DistillationRecord, LeaseHolder, PipelineRecord
from kdnas.db.repository import distillations, leases, pipelines
from kdnas.db.repository.transitions import apply_action
from kdnas.errors import ConflictError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec


@dataclass(frozen=True)
class Cancellation:
    """A cancelled distillation, and who worked on it at that moment, if anybody did."""

    record: DistillationRecord
    holder: LeaseHolder | None


def cancel_stored_distillation(
    reference: str, database: Database, settings: Settings
) -> Cancellation:
    """Cancel a distillation for good and see to it that its checkpoints go.

    A process that works on it stops within seconds and removes them itself; where nobody does,
    they are removed here.

    Args:
        reference: id or name.
        database: where it is stored.
        settings: of the environment.

    Raises:
        NotFoundError: there is no such distillation.
        ConflictError: it has succeeded, or is cancelled already.
    """
    with database.read() as session:
        record = distillations.get_distillation(session, reference)
    try:
        with database.write() as session:
            apply_action(session, Distillation, record.id, "cancel")
            record = distillations.get_distillation(session, record.id)
            holder = leases.holder(session, Distillation, record.id)
    except ConflictError:
        with database.read() as session:
            worked_on = leases.holder(session, Distillation, record.id) is not None
        if not worked_on:
            _remove_files(record, settings)  # a kill may have left them
        raise
    if holder is None:
        _remove_files(record, settings)
    return Cancellation(record, holder)


def cancel_stored_pipeline(
    reference: str, database: Database, settings: Settings
) -> PipelineRecord:
    """Cancel a pipeline with all of its parts, and see to it that their checkpoints go.

    Args:
        reference: id or name.
        database: where it is stored.
        settings: of the environment.

    Raises:
        NotFoundError: there is no such pipeline.
        ConflictError: it has succeeded, or is cancelled already.
    """
    with database.write() as session:
        record = pipelines.get_pipeline(session, reference)
        apply_action(session, Pipeline, record.id, "cancel")
    with database.read() as session:
        record = pipelines.get_pipeline(session, record.id)
        members = pipelines.list_members(session, record.id)
        made = [m.distillation for m in members if m.distillation is not None]
        left = [one for one in made if leases.holder(session, Distillation, one.id) is None]
        scored = [one for member in members for one in member.evaluations]
        left_scores = [one for one in scored if leases.holder(session, Evaluation, one.id) is None]
    for one in left:
        if one.status == "cancelled":
            _remove_files(one, settings)
    for score in left_scores:
        if score.status == "cancelled":
            remove_evaluation_checkpoints(settings, score.id)
    return record


def _remove_files(record: DistillationRecord, settings: Settings) -> None:
    spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
    remove_run_files(spec, settings, record.id)

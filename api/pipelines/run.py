"""A pipeline of the command line: its parts one after another, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from api.jobs.lease import held_lease
from api.pipelines.advance import advance
from kdnas.db.engine import Database
from kdnas.db.models import Job
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import DistillationRecord, EvaluationRecord, PipelineRecord
from kdnas.db.repository import jobs, pipelines, searches
from kdnas.errors import ConflictError, DatabaseError
from kdnas.records import SearchRecord

Part = SearchRecord | DistillationRecord | EvaluationRecord


@dataclass(frozen=True)
class Doers:
    """What does each kind of part, on the screen; ``failed`` is told of one that failed."""

    search: Callable[[SearchRecord], object]
    distillation: Callable[[DistillationRecord], object]
    evaluation: Callable[[EvaluationRecord], object]
    failed: Callable[[Part, Exception], None]

    def do(self, part: Part) -> None:
        """Do a part."""
        if isinstance(part, SearchRecord):
            self.search(part)
        elif isinstance(part, DistillationRecord):
            self.distillation(part)
        else:
            self.evaluation(part)


def run_stored_pipeline(
    pipeline_id: str,
    database: Database,
    doers: Doers,
    should_stop: Callable[[], bool] = lambda: False,
) -> PipelineRecord:
    """Run a stored pipeline, or go on with it where it was cut off; what failed is tried again.

    Args:
        pipeline_id: of a pipeline that is not over.
        database: where it is stored.
        doers: do its parts, and see to ``should_stop`` themselves.
        should_stop: asked between parts; True ends this run, and the pipeline is paused.

    Returns:
        The pipeline as it is now.

    Raises:
        ConflictError: it is over, it is the service's, or another process works on it or a part.
    """
    with database.read() as session:
        record = pipelines.get_pipeline(session, pipeline_id)
    if record.status in {"succeeded", "cancelled"}:
        raise ConflictError(f"pipeline {record.name!r} is {record.status}; start a new one")
    if record.owner_kind == "service":
        raise ConflictError(
            f"pipeline {record.name!r} is the service's, which goes on with it; resume it there"
        )
    owner = LeaseOwner.of_this_process("cli")
    with held_lease(database, Job, pipeline_id, owner):
        _take_up(database, pipeline_id)
        try:
            _go_on(database, pipeline_id, doers, should_stop)
        except BaseException:
            _rest(database, pipeline_id)
            raise
        if should_stop():
            _rest(database, pipeline_id)
    with database.read() as session:
        return pipelines.get_pipeline(session, pipeline_id)


def _go_on(
    database: Database, pipeline_id: str, doers: Doers, should_stop: Callable[[], bool]
) -> None:
    """Do part after part until nothing is left, or somebody wants it to stop."""
    while not should_stop():
        with database.write() as session:
            record = advance(session, pipeline_id)
        if record.status not in {"queued", "running"}:
            return
        part = _next_part(database, record)
        if part is None:
            continue  # the last one was cancelled a moment ago
        try:
            doers.do(part)
        except (ConflictError, DatabaseError):
            raise
        except Exception as error:
            with database.read() as session:
                status = jobs.status_of(session, part.id)
            if status not in {"failed", "cancelled"}:
                raise
            doers.failed(part, error)


def _next_part(database: Database, record: PipelineRecord) -> Part | None:
    """Return the first part that is to be done: the search, then students, then scores."""
    with database.read() as session:
        members = pipelines.list_members(session, record.id)
        parts: list[Part] = []
        if record.search_id is not None:
            parts.append(searches.get_search(session, record.search_id))
    parts += [m.distillation for m in members if m.distillation is not None]
    parts += [evaluation for member in members for evaluation in member.evaluations]
    return next((part for part in parts if part.status in {"queued", "running"}), None)


def _take_up(database: Database, pipeline_id: str) -> None:
    """Set a pipeline running, and queue again what was paused or has failed."""
    with database.write() as session:
        row = jobs.locked_job(session, pipeline_id)
        for part in jobs.locked_children(session, pipeline_id):
            if part.status in {"paused", "failed"}:
                jobs.change_status(session, part, "queued")
        if row.status != "running":
            jobs.change_status(session, row, "running")


def _rest(database: Database, pipeline_id: str) -> None:
    """Write down that this run has ended before the pipeline has, unless somebody did so."""
    with database.write() as session:
        row = jobs.locked_job(session, pipeline_id)
        if row.status in {"queued", "running"}:
            jobs.change_status(session, row, "paused")

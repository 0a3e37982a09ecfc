"""A pipeline of the command line: its parts one after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from api.jobs.lease import held_lease
from api.jobs.work import OVER
from api.pipelines.advance import advance
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import PipelineRecord
from kdnas.db.repository import jobs, pipelines, searches
from kdnas.errors import ConflictError, DatabaseError

Doers = Mapping[str, Callable[[Any], object]]
"""Kind of a part → does one, given its record."""


def run_stored_pipeline(
    pipeline_id: str,
    database: Database,
    doers: Doers,
    on_failed: Callable[[Exception], object],
    should_stop: Callable[[], bool] = lambda: False,
) -> PipelineRecord:
    """Run a stored pipeline, or go on with it where it was cut off; what failed is tried again.

    Args:
        pipeline_id: of a pipeline that is not over.
        database: where it is stored.
        doers: do its parts, and see to ``should_stop`` themselves.
        on_failed: is told what a part failed of; the pipeline goes on with the others.
        should_stop: asked between parts; True ends this run, and the pipeline is paused.

    Returns:
        The pipeline as it is now.

    Raises:
        ConflictError: it is over, it is the service's, or another process works on it or a part.
    """
    record = database.ask(lambda session: pipelines.get_pipeline(session, pipeline_id))
    if record.status in OVER:
        raise ConflictError(f"pipeline {record.name!r} {OVER[record.status]}; start a new one")
    if record.owner_kind == "service":
        raise ConflictError(
            f"pipeline {record.name!r} is the service's, which goes on with it; resume it there"
        )
    with held_lease(database, Job, pipeline_id, LeaseOwner.of_this_process("cli")) as is_lost:
        _take_up(database, pipeline_id)
        try:
            _go_on(database, pipeline_id, doers, on_failed, should_stop)
        finally:
            if not is_lost():  # it is not ours to say that it rests
                _rest(database, pipeline_id)
    return database.ask(lambda session: pipelines.get_pipeline(session, pipeline_id))


def _go_on(
    database: Database,
    pipeline_id: str,
    doers: Doers,
    on_failed: Callable[[Exception], object],
    should_stop: Callable[[], bool],
) -> None:
    """Do part after part until nothing is left, or somebody wants it to stop."""
    while not should_stop():
        record = database.transact(lambda session: advance(session, pipeline_id))
        if record.status not in {"queued", "running"}:
            return
        for kind, part in _open_parts(database, record)[:1]:  # none if it was just cancelled
            try:
                doers[kind](part)
            except (ConflictError, DatabaseError):
                raise
            except Exception as error:
                status = database.ask(partial(jobs.status_of, job_id=part.id))
                if status not in {"failed", "cancelled"}:
                    raise
                on_failed(error)


def _open_parts(database: Database, record: PipelineRecord) -> list[tuple[str, Any]]:
    """Return what is to be done, each with its kind: search, students, scores, second steps."""
    parts: list[tuple[str, Any]] = []
    if (search_id := record.search_id) is not None:
        parts.append(("search", database.ask(lambda s: searches.get_search(s, search_id))))
    members = database.ask(lambda session: pipelines.list_members(session, record.id))
    parts += [("distillation", m.distillation) for m in members if m.distillation is not None]
    parts += [("evaluation", evaluation) for m in members for evaluation in m.evaluations]
    parts += [("task_distillation", one) for m in members for one in m.task_distillations]
    return [(kind, part) for kind, part in parts if part.status in {"queued", "running"}]


def _take_up(database: Database, pipeline_id: str) -> None:
    """Set a pipeline running, and queue again what was paused or has failed."""

    def write(session: Session) -> None:
        row = jobs.locked_job(session, pipeline_id)
        if row.status in OVER:  # since it was looked at
            raise ConflictError(f"pipeline {row.name!r} {OVER[row.status]}; start a new one")
        for part in jobs.locked_children(session, pipeline_id):
            if part.status in {"paused", "failed"}:
                jobs.change_status(session, part, "queued")
                part.try_again(session)
        if row.status != "running":
            jobs.change_status(session, row, "running")

    database.transact(write, by="cli")


def _rest(database: Database, pipeline_id: str) -> None:
    """Write down that this run has ended before the pipeline has, unless somebody did so."""

    def write(session: Session) -> None:
        row = jobs.locked_job(session, pipeline_id)
        if row.status in {"queued", "running"}:
            jobs.change_status(session, row, "paused")

    database.transact(write)

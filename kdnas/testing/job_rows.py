"""A job of any kind in a database: what tests of that which all kinds share begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kdnas.db.engine import Database
from kdnas.db.models import (
    Distillation,
    Evaluation,
    Job,
    LatencyBuild,
    Pipeline,
    Search,
    TaskDistillation,
    kind_of,
)
from kdnas.db.records import OwnerKind
from kdnas.db.repository import distillations, jobs
from kdnas.records import SearchStatus

_OWN_COLUMNS: Final[Mapping[type[Job], Mapping[str, Any]]] = {
    Search: {},
    Distillation: {"architecture": "3,4,192,384,gelu"},
    Evaluation: {"model": "m", "suite": "glue", "task": "RTE", "seed": 0},
    LatencyBuild: {},
    Pipeline: {},
    TaskDistillation: {"task": "RTE", "student": "first-layers:3"},
}

TABLES: Final = tuple(_OWN_COLUMNS)
KINDS: Final = tuple(map(kind_of, TABLES))


def make_job(
    database: Database,
    kind: str = "search",
    status: SearchStatus = "queued",
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "service",
    parent_id: str | None = None,
) -> str:
    """Write a job of a kind with an empty request, and return its id.

    Args:
        database: where to write it.
        kind: one of :data:`KINDS`.
        status: set by the function that everybody uses, with its event.
        name: None for what nobody named.
        owner_kind: who is to do it.
        parent_id: the job that asked for it.
    """
    table = TABLES[KINDS.index(kind)]
    with database.write() as session:
        row = jobs.add_job(
            session,
            table,
            {},
            name=name,
            owner_kind=owner_kind,
            parent_id=parent_id,
            **_OWN_COLUMNS[table],
        )
        if status != "queued":
            jobs.set_status(session, row.id, status)
        return row.id


def make_distilled(database: Database, name: str, output: Path | None) -> str:
    """Write a full distillation of the command line, and return its id.

    Args:
        database: where to write it.
        name: to call it by.
        output: where its student is; None of one that is still queued.
    """
    made = make_job(database, "distillation", name=name, owner_kind="cli")
    if output is not None:
        with database.write() as session:
            distillations.set_distillation_result(
                session, made, metrics={}, output_path=str(output)
            )
            jobs.set_status(session, made, "succeeded")
    return made


def status_of(database: Database, job_id: str) -> SearchStatus | None:
    """Return where a job stands; None if it is gone."""
    with database.read() as session:
        return jobs.status_of(session, job_id)

"""What a kind of job is: the one value that says all in which it differs from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from api.jobs.context import JobContext
from kdnas.db.engine import Database
from kdnas.db.models import Job, kind_of
from kdnas.settings import Settings
from kdnas.specs.base import Spec


@dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Attributes:
        table: of its jobs, a subclass of :class:`~kdnas.db.models.Job`; names the kind.
        plural: the kind's name for many, as in paths and metrics: ``searches``.
        run: does the work in a process of its own; returns when it is done, raises KdnasError
            where it fails and StoppedError where it was to stop. None has no process: such a job
            consists of its children, and ``move_on`` asks for them.
        move_on: called every few seconds by each coordinator.
        clean_up: removes what one that is over would have gone on with; may be called again.
        tidy: removes what dead processes left behind; called now and then by each coordinator.
        needs_cluster: whether a request runs on Ray and names no cluster itself.
        shares_cores: whether several at a time are to take a part of the cores each.
        has_page: whether the dashboard shows one of them at ``/{plural}/{id}``.
        routes: what answers for it under ``/api/v1``, besides ``/jobs``; None has one asked for by
            its ``spec``, listed, read, changed and deleted under ``/{plural}``.
        spec: of a request; its field ``name``, if it has one, names the job.
        columns: values of its own table's columns for a new request.
    """

    table: type[Job]
    plural: str
    run: Callable[[JobContext], object] | None
    move_on: Callable[[Database], None] = lambda _: None
    clean_up: Callable[[str, Database, Settings], None] = lambda *_: None
    tidy: Callable[[Database, Settings], None] = lambda *_: None
    needs_cluster: Callable[[Mapping[str, Any]], bool] = lambda _: False
    shares_cores: bool = False
    has_page: bool = False
    routes: Callable[[], Iterable[APIRouter]] | None = None
    spec: type[Spec] | None = None
    columns: Callable[[Any], Mapping[str, Any]] = lambda _: {}

    @property
    def name(self) -> str:
        """The kind's name: ``search``."""
        return kind_of(self.table)

    @property
    def path(self) -> str:
        """Its pages in the dashboard and its part of the REST API: ``searches``."""
        return self.plural.replace("_", "-")

"""What a kind of job is: the one value that says all in which it differs from the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from api.jobs.context import JobContext
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from kdnas.db.engine import Database, Session
from kdnas.db.lists.job_pages import Listing
from kdnas.db.models import Job, kind_of
from kdnas.settings import Settings
from kdnas.specs.base import Spec

Adding = Callable[[Session], str]
"""Writes the job of a request that was found good: session of a write transaction → its id."""


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
        leftovers: returns what removes that with which one that is over would have gone on; asked
            for while its row is there, called when it may be gone, perhaps twice.
        tidy: removes what dead processes left behind; called now and then by each coordinator.
        needs_cluster: whether a request runs on Ray and names no cluster itself.
        shares_cores: whether several at a time are to take a part of the cores each.
        has_page: whether the dashboard shows one of them at ``/{plural}/{id}``.
        spec: of a request, which ``POST /{plural}`` takes; None has no such route. Its field
            ``name``, if it has one, names the job.
        columns: values of its own table's columns for a new request.
        create: checks a request and returns what writes its job; None writes it as it is, with
            ``columns``.
        listing: what its list reads besides what all jobs have; None has nothing.
        shape: of one in the list.
        detail: of one in full.
        query: of the list.
        routers: modules of ``api`` whose ``router`` answers besides, under ``/api/v1``.
    """

    table: type[Job]
    plural: str
    run: Callable[[JobContext], object] | None
    move_on: Callable[[Database], None] = lambda _: None
    leftovers: Callable[[Job, Settings], Callable[[], object]] = lambda *_: lambda: None
    tidy: Callable[[Database, Settings], None] = lambda *_: None
    needs_cluster: Callable[[Mapping[str, Any]], bool] = lambda _: False
    shares_cores: bool = False
    has_page: bool = False
    spec: type[Spec] | None = None
    columns: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    create: Callable[[Any, Database, Settings], Adding] | None = None
    listing: Listing | None = None
    shape: type[JobShape] = JobShape
    detail: type[JobDetail] = JobDetail
    query: type[KindQuery] = KindQuery
    routers: Collection[str] = ()

    @property
    def name(self) -> str:
        """The kind's name: ``search``."""
        return "job" if self.table is Job else kind_of(self.table)

    @property
    def path(self) -> str:
        """Its pages in the dashboard and its part of the REST API: ``searches``."""
        return self.plural.replace("_", "-")

    def clean_up(self, job_id: str, database: Database, settings: Settings) -> None:
        """Remove what a job that is over would have gone on with; may be called again."""

        def find(session: Session) -> Callable[[], object]:
            job = session.get(self.table, job_id)
            if job is None:  # whoever has deleted it has removed that
                return lambda: None
            return self.leftovers(job, settings)

        database.ask(find)()

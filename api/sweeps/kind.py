"""Sweeps as a kind of job."""

from __future__ import annotations

from api.inputs.clusters import needs_cluster
from api.jobs.context import JobContext
from api.jobs.kind import Adding, JobKind
from api.sweeps.schemas import SweepDetail, SweepShape
from kdnas.db.engine import Database, Session
from kdnas.db.lists.sweep_pages import LISTING
from kdnas.db.models import Sweep
from kdnas.db.repository import sweeps
from kdnas.errors import told_at
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.files import named_table, packaged_tables


def _run(context: JobContext) -> None:
    from api.inputs.preparation import Watchers
    from api.sweeps.run import run_in  # loads torch

    run_in(context, Watchers.of(context))


def _create(spec: SweepSpec, database: Database, settings: Settings) -> Adding:
    from api.inputs.data_roots import check_folder, check_paths

    check_paths(spec, settings)
    if spec.without is not None and spec.without not in packaged_tables():
        check_folder(spec.without, "without", settings)
        with told_at("without"):
            named_table(spec.without, settings.for_service().reach)
    if spec.space.kind == "custom":
        with told_at("space.axes"):
            SearchSpace.from_axes(spec.space.axes)

    def add(session: Session) -> str:
        asked = spec.to_json()
        return sweeps.create_sweep(session, asked, name=spec.name, owner_kind="service").id

    return add


KIND = JobKind(
    table=Sweep,
    plural="sweeps",
    run=_run,
    needs_cluster=needs_cluster,
    has_page=True,
    spec=SweepSpec,
    create=_create,
    listing=LISTING,
    shape=SweepShape,
    detail=SweepDetail,
    routers=("api.sweeps.routes",),
)

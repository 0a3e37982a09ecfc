"""One latency table that somebody asked the service for, built and stored."""

from __future__ import annotations

from api.inputs.preparation import build_space, check_length, ensure_latencies
from api.jobs.context import JobContext
from kdnas.db.engine import Session
from kdnas.db.repository import jobs, latencies
from kdnas.models.teacher import prepare_teacher
from kdnas.specs.objectives import DEFAULT
from kdnas.specs.parts import StudentSpec, TeacherSpec
from kdnas.specs.search import LatencySpec, SpaceSpec
from kdnas.store import Store


def run_in(context: JobContext) -> None:
    """Build the table of a job on which this process is at work; one that is there is taken.

    Raises:
        StoppedError: it was to stop.
        KdnasError: the table could not be built.
    """
    database, what = context.database, context.called

    def tell(share: float, text: str) -> None:
        context.check()
        context.latency(share, text)
        context.progress(round(100 * share), 100)

    request, settings = context.spec, context.settings
    spec = LatencySpec.read(request.get("latency", {}), what)
    named = TeacherSpec.read(request["teacher"], what)
    teacher = prepare_teacher(named, Store.from_settings(settings), settings.reach)
    check_length("latency.length", spec.length, teacher)
    axes = SpaceSpec.read(request.get("space", {}), what)
    space = build_space(axes, teacher, DEFAULT, StudentSpec().init)
    table = ensure_latencies(
        database, spec, teacher, space, tell, lambda text: tell(0.0, text), context.check
    )
    key = (table.profile.fingerprint, table.family, table.teacher_fingerprint)

    def write(session: Session) -> None:
        stored = latencies.find_profile(session, *key)
        assert stored is not None  # just written, or found
        if jobs.locked_job(session, context.id).status == "running":
            latencies.set_built(session, context.id, stored.id)

    database.transact(write)

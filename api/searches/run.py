"""One search, put together and run: by the command line here, by the coordinator in the service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace

from api.inputs.preparation import (
    OnCorpus,
    OnPreparing,
    Pinned,
    Watchers,
    build_space,
    check_length,
    check_objective,
    ensure_latencies,
    pin,
    possible_start,
    prepare_objective,
    store_warnings,
)
from api.jobs.context import JobContext, StoppedError
from api.jobs.work import do_job
from api.searches.progress import SearchProgress
from controller.strategies import build_strategy
from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.corpus.batches import refuse_too_few
from kdnas.corpus.proxy_set import proxy_set
from kdnas.cpu import available_cores
from kdnas.db.engine import Database
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import jobs, searches
from kdnas.models.cost import (
    EmbeddingShape,
    count_parameters,
    flops_per_token,
    teacher_architecture,
)
from kdnas.models.teacher import TeacherHandle
from kdnas.records import (
    LatencyTable,
    MiniKDContext,
    SearchFacts,
    SearchRecord,
    SearchStatus,
)
from kdnas.search.limits import allowed_states, state_facts
from kdnas.search.loop import SearchSetup, run_search
from kdnas.search.progress import Progress
from kdnas.search.reward import depth_warning
from kdnas.search_space import AXES, SearchSpace
from kdnas.settings import Settings
from kdnas.specs.search import LimitsSpec, SearchSpec
from kdnas.store import Store
from workers.backend import build_backend
from workers.layout import (
    backend_plan,
    largest_student_bytes,
    resolve_backend,
    teacher_bytes,
)
from workers.machine import machine_at


@dataclass(frozen=True)
class PreparedSearch:
    """A request with nothing left open: its inputs in the store, its layout decided.

    ``spec`` pins teacher and corpus by fingerprint and names workers, threads and group size;
    ``warnings`` are what the user should know before hours are spent.
    """

    spec: SearchSpec
    pinned: Pinned
    space: SearchSpace
    context: MiniKDContext
    store: Store
    warnings: tuple[str, ...] = ()

    def params_millions(self, architecture: Architecture) -> float:
        """Parameters of a student with the teacher's vocabulary, in millions."""
        return count_parameters(architecture, EmbeddingShape.of(self.pinned.teacher.shape)) / 1e6


def prepare_search(
    spec: SearchSpec,
    settings: Settings,
    on_corpus: OnCorpus = lambda _: None,
    on_preparing: OnPreparing = lambda *_: None,
) -> PreparedSearch:
    """Check a request, bring its inputs into the store and decide what it left open.

    Raises:
        RequestError: anything in the request that cannot be done.
    """
    build_strategy(spec.controller, SearchSpace.paper(), spec.seed)  # unknown names fail early
    address = _address(spec, settings) if spec.backend.name == "ray" else None
    machine = machine_at(address, spec.backend.device)
    device = machine.choose_device(spec.backend.device)

    def check(teacher: TeacherHandle) -> None:
        build_space(spec.space, teacher, spec.objective, spec.student.init)
        check_length("latency.length", spec.latency.length, teacher)
        check_objective(spec.objective, teacher)

    store = Store.from_settings(settings)
    pinned = pin(spec.teacher, spec.corpus, store, on_corpus, check, settings.reach)
    chosen = proxy_set(pinned.corpus, spec.proxy.fraction, spec.proxy.seed)
    refuse_too_few(len(chosen), spec.proxy.batch_size, "a larger proxy fraction, ")
    shape = pinned.teacher.shape
    student, about_the_start = possible_start(spec.student, spec.objective, pinned)
    space = build_space(spec.space, pinned.teacher, spec.objective, student.init)
    backend = resolve_backend(
        spec.backend,
        spec.controller.candidates,
        largest_student_bytes(space, shape, spec.proxy, spec.corpus.max_length),
        teacher_bytes(shape),
        machine,
    )
    dtype = machine.choose_dtype(spec.proxy.dtype, device)
    proxy = spec.proxy.model_copy(update={"dtype": dtype})
    ranked = sorted(space.states, key=flops_per_token)
    objective, teacher = prepare_objective(
        spec.objective,
        ranked[len(ranked) // 2],
        pinned.teacher,
        pinned.corpus,
        store,
        student,
        proxy,
        spec.backend.device,
        spec.proxy.dtype,
        available_cores(),
        on_preparing,
    )
    resolved = spec.model_copy(
        update={
            "teacher": pinned.teacher_spec,
            "corpus": pinned.corpus_spec,
            "backend": backend,
            "proxy": proxy,
            "objective": objective,
            "student": student,
        }
    )
    context = MiniKDContext(
        teacher=pinned.teacher.fingerprint,
        corpus=pinned.corpus.fingerprint,
        objective=objective.context(),
        student=student.to_json(),
        proxy={k: v for k, v in proxy.to_json().items() if k not in {"reuse", "dtype"}},
        dtype=dtype,
        engine_version=ENGINE_VERSION,
    )
    prepared = PreparedSearch(resolved, replace(pinned, teacher=teacher), space, context, store)
    # Of the limits that on size alone: one on latency takes a table that may not be there.
    most = spec.limits.max_params_millions
    small = [a for a in space.states if most is None or prepared.params_millions(a) <= most]
    doubt = depth_warning(spec.reward.loss, small)
    warnings = (
        *pinned.corpus.meta["warnings"],
        *about_the_start,
        *objective.doubts(proxy.learning_rate),
        *store_warnings(machine, settings),
        *([] if doubt is None else [doubt]),
    )
    return replace(prepared, warnings=warnings)


def create_search(prepared: PreparedSearch, database: Database) -> SearchRecord:
    """Store a prepared search of the command line.

    Raises:
        ConflictError: its name is taken.
    """
    with database.write() as session:
        return searches.create_search(
            session, prepared.spec.to_json(), name=prepared.spec.name, owner_kind="cli"
        )


def run_stored_search(
    search_id: str,
    database: Database,
    settings: Settings,
    watchers: Watchers = Watchers(),
    should_stop: Callable[[], bool] = lambda: False,
    max_hours: float | None = None,
) -> SearchStatus:
    """Run a stored search of the command line, or go on with it where it was cut off.

    A request that was stored as it came in is prepared first, and stored with nothing left open.

    Args:
        search_id: of a search that is not finished.
        database: where it is stored.
        settings: of this process.
        watchers: who is told what happens.
        should_stop: asked between results, and while inputs are prepared; True pauses it.
        max_hours: of this run; None takes the spec's.

    Returns:
        The status that it has now; another party may have written it.

    Raises:
        ConflictError: another process works on it, or it was cancelled.
        KdnasError: whatever kept it from going on; its status says so.
    """
    return do_job(
        search_id,
        database,
        settings,
        lambda context: run_in(context, watchers, max_hours),
        should_stop=should_stop,
    )


def run_in(context: JobContext, watchers: Watchers, max_hours: float | None = None) -> None:
    """Do the work of a search on whose job this process is at work.

    Args:
        context: of the search.
        watchers: who is told what happens.
        max_hours: of this run; None takes the spec's.

    Raises:
        StoppedError: it was to stop.
        KdnasError: whatever kept it from going on.
    """
    spec, prepared, table = _prepare_stored(context, watchers)
    if max_hours is not None:
        limits = spec.limits.model_copy(update={"max_hours": max_hours})
        spec = spec.model_copy(update={"limits": limits})
    journal = DatabaseJournal(context.database)
    setup = SearchSetup(
        search_id=context.id,
        spec=spec,
        space=prepared.space,
        latencies=table,
        params_millions=prepared.params_millions,
        context=journal.save_context(prepared.context),
        teacher=teacher_architecture(prepared.pinned.teacher.shape),
    )
    with context.database.read() as session:
        finished = jobs.get_job(session, context.id).progress_mark(session)
    size = spec.controller
    context.end_preparation("starting workers")
    progress = SearchProgress(context, size.episodes, size.candidates, finished)

    def on_progress(event: Progress) -> None:
        progress(event)
        watchers.progress(event)

    settings = context.settings
    with _cluster(spec, settings):
        status = run_search(
            setup,
            build_strategy(spec.controller, prepared.space, spec.seed),
            build_backend(
                spec.backend.name,
                prepared.context,
                backend_plan(spec.backend, settings.store_url),
            ),
            journal,
            on_progress=on_progress,
            should_stop=context.should_stop,
            stopped_status=context.stopped_status,
        )
    if status != "succeeded":
        raise StoppedError


def _prepare_stored(
    context: JobContext, watchers: Watchers
) -> tuple[SearchSpec, PreparedSearch, LatencyTable]:
    """Prepare a stored search and write down what that has decided.

    Raises:
        StoppedError: it was to stop meanwhile.
    """
    database = context.database
    told = watchers.checked(context.check)
    stored = SearchSpec.read(dict(context.spec), context.called)
    prepared = prepare_search(stored, context.settings, told.corpus, told.preparing)
    for text in prepared.warnings:
        watchers.warning(text)
    context.check()
    with database.write() as session:
        jobs.resolve(session, context.id, prepared.spec.to_json())
    table = ensure_latencies(
        database,
        prepared.spec.latency,
        prepared.pinned.teacher,
        prepared.space,
        told.latency,
        watchers.waiting,
        context.check,
    )
    with database.write() as session:
        searches.set_search_facts(session, context.id, _facts(prepared, table))
    context.check()
    return prepared.spec, prepared, table


def _facts(prepared: PreparedSearch, table: LatencyTable) -> SearchFacts:
    """Collect what was found out and the spec does not say.

    Raises:
        SpecError: no state is within the limits.
    """
    shape, limits, allowed = prepared.pinned.teacher.shape, prepared.spec.limits, None
    if limits != LimitsSpec(max_hours=limits.max_hours):
        known = state_facts(prepared.space, table, prepared.params_millions)
        allowed = allowed_states(known, limits)
    return SearchFacts(
        teacher={axis: getattr(shape, axis) for axis in AXES},
        embedding=asdict(EmbeddingShape.of(shape)),
        axes={axis: list(values) for axis, values in prepared.space.axes.items()},
        head_multiple=prepared.space.head_multiple,
        allowed=allowed,
        latency_profile=table.profile.fingerprint,
        family=table.family,
        teacher_fingerprint=table.teacher_fingerprint,
        teacher_ms=table.teacher_ms,
        warnings=list(prepared.warnings),
    )


def _cluster(spec: SearchSpec, settings: Settings) -> AbstractContextManager[object]:
    if spec.backend.name != "ray":
        return nullcontext()
    from workers.cluster import cluster

    return cluster(_address(spec, settings))


def _address(spec: SearchSpec, settings: Settings) -> str | None:
    return spec.backend.address or settings.ray_address

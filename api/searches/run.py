"""One search, put together and run: by the command line here, by the coordinator in the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from api.inputs.clusters import cluster_for
from api.inputs.mini_kd import PreparedProxies, prepare_proxies
from api.inputs.preparation import OnCorpus, OnPreparing, Watchers, ensure_latencies
from api.jobs.changes import delete_job
from api.jobs.context import JobContext, StoppedError
from api.jobs.work import do_job
from api.searches.progress import SearchProgress
from controller.strategies import build_strategy, check_starts
from kdnas.architecture import Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import jobs, searches, sweeps
from kdnas.models.cost import EmbeddingShape, teacher_architecture
from kdnas.records import LatencyTable, SearchFacts, SearchRecord, SearchStatus
from kdnas.search.limits import allowed_states, state_facts
from kdnas.search.loop import SearchSetup, run_search
from kdnas.search.progress import Progress
from kdnas.search.reward import depth_warning
from kdnas.search_space import AXES, SearchSpace
from kdnas.settings import Settings
from kdnas.specs.search import LimitsSpec, SearchSpec

PreparedSearch = PreparedProxies[SearchSpec]


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
    build_strategy(spec.controller, SearchSpace.paper(), spec.seed)  # what cannot be fails early
    prepared = prepare_proxies(
        spec, spec.proxy, spec.controller.candidates, settings, on_corpus, on_preparing
    )
    # Of the limits that on size alone: one on latency takes a table that may not be there.
    most = spec.limits.max_params_millions
    small = [
        a for a in prepared.space.states if most is None or prepared.params_millions(a) <= most
    ]
    doubt = depth_warning(spec.reward.loss, small)
    return replace(prepared, warnings=(*prepared.warnings, *([] if doubt is None else [doubt])))


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
    at_once: Callable[[], bool] = lambda: False,
) -> SearchStatus:
    """Run a stored search of the command line, or go on with it where it was cut off.

    A request that was stored as it came in is prepared first, and stored with nothing left open.

    Args:
        search_id: of a search that is not finished.
        database: where it is stored.
        settings: of this process.
        watchers: who is told what happens.
        should_stop: asked between results, and while inputs are prepared; True pauses it when the
            students that are being trained have come to their end.
        max_hours: of this run; None takes the spec's.
        at_once: asked where ``should_stop`` says True; True loses those students' steps.

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
        at_once=at_once,
    )


def discard_if_refused(search_id: str, database: Database, settings: Settings) -> bool:
    """Delete a search that failed before its preparation was over: nothing of it was trained.

    Some requests show to be wrong only when latencies are known, which takes a stored search.

    Returns:
        Whether it is gone.
    """
    with database.read() as session:
        failed = jobs.status_of(session, search_id) == "failed"
        if not failed or searches.search_facts(session, search_id) is not None:
            return False
    delete_job(search_id, database, settings, with_standing=False)
    return True


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
    spec, prepared, table, starts = _prepare_stored(context, watchers)
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
        starts=_by_index(prepared.space, starts),
    )
    finished = context.database.ask(
        lambda session: jobs.get_job(session, context.id).progress_mark(session)
    )
    size = spec.controller
    context.end_preparation("starting workers")
    progress = SearchProgress(context, size.episodes, size.candidates, finished)

    def on_progress(event: Progress) -> None:
        progress(event)
        watchers.progress(event)

    settings = context.settings
    with cluster_for(spec.backend, settings):
        status = run_search(
            setup,
            build_strategy(spec.controller, prepared.space, spec.seed),
            prepared.backend(prepared.context, settings),
            journal,
            on_progress=on_progress,
            should_stop=context.should_stop,
            at_once=context.at_once,
            stopped_status=context.stopped_status,
        )
    if status != "succeeded":
        raise StoppedError


def _starts(database: Database, search_id: str, prepared: PreparedSearch) -> dict[str, float]:
    """Losses with which states start: those of when the search began, or what sweeps have read."""

    def find(session: Session) -> dict[str, float]:
        before = searches.search_facts(session, search_id)
        return swept_starts(session, prepared) if before is None else dict(before.starts)

    return database.ask(find)


def swept_starts(session: Session, prepared: PreparedSearch) -> dict[str, float]:
    """Losses with which states start, as far as sweeps have read them."""
    known = sweeps.known_starts(session, prepared.context, prepared.spec.reward.loss)
    return {str(state): value for state, value in known.items() if state in prepared.space}


def require_starts(prepared: PreparedSearch, starts: Mapping[str, float]) -> None:
    """Refuse a strategy that needs more of them than there are.

    Raises:
        SpecError: says how many are missing.
    """
    space = prepared.space
    check_starts(prepared.spec.controller, space, _by_index(space, starts))


def _by_index(space: SearchSpace, starts: Mapping[str, float]) -> dict[int, float]:
    return {space.index(Architecture.parse(name)): loss for name, loss in starts.items()}


def _prepare_stored(
    context: JobContext, watchers: Watchers
) -> tuple[SearchSpec, PreparedSearch, LatencyTable, dict[str, float]]:
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
    database.transact(lambda session: jobs.resolve(session, context.id, prepared.spec.to_json()))
    starts = _starts(database, context.id, prepared)
    require_starts(prepared, starts)
    begun = database.ask(lambda session: searches.search_facts(session, context.id))
    table = ensure_latencies(
        database,
        prepared.spec.latency,
        prepared.pinned.teacher,
        prepared.space,
        told.latency,
        watchers.waiting,
        context.check,
        began_with=None if begun is None else begun.latency_profile,
    )
    database.transact(
        lambda session: searches.set_search_facts(
            session, context.id, _facts(prepared, table, starts)
        )
    )
    context.check()
    return prepared.spec, prepared, table, starts


def _facts(
    prepared: PreparedSearch, table: LatencyTable, starts: Mapping[str, float]
) -> SearchFacts:
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
        starts=starts,
    )

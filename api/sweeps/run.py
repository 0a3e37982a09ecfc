"""One sweep, put together and run: by the command line here, by the coordinator in the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

import numpy as np

from api.inputs.clusters import cluster_for
from api.inputs.mini_kd import PreparedProxies, prepare_proxies
from api.inputs.preparation import OnCorpus, OnPreparing, Watchers, ensure_latencies
from api.jobs.context import JobContext
from api.jobs.work import do_job
from api.sweeps.table import card_of
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import losses
from kdnas.db.repository import jobs, sweeps
from kdnas.errors import SpecError, TrainingError
from kdnas.models.cost import EmbeddingShape
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import (
    AttemptInterrupted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    JobRecord,
    LatencyTable,
    MiniKDContext,
    MiniKDRequest,
    MiniKDResult,
    SearchStatus,
    SweepFacts,
)
from kdnas.search.at_work import StudentsAtWork
from kdnas.search_space import AXES, SearchSpace
from kdnas.settings import Settings
from kdnas.specs.sweep import SweepSpec
from kdnas.tabular.files import named_table
from kdnas.tabular.table import apart, read_whole

PreparedSweep = PreparedProxies[SweepSpec]


class SweepNews(NamedTuple):
    """How many states of a sweep are done, and what happens at present."""

    done: int
    total: int
    text: str
    failure: str | None


def prepare_sweep(
    spec: SweepSpec,
    settings: Settings,
    on_corpus: OnCorpus = lambda _: None,
    on_preparing: OnPreparing = lambda *_: None,
) -> PreparedSweep:
    """Check a request, bring its inputs into the store and decide what it left open.

    Raises:
        RequestError: anything in the request that cannot be done.
    """
    proxy = spec.proxy_of(spec.seeds[0])
    prepared = prepare_proxies(
        spec, proxy, spec.states or len(SearchSpace.paper()), settings, on_corpus, on_preparing
    )
    if spec.states is not None and spec.states > len(prepared.space):
        raise SpecError(
            f"states ({spec.states}) are more than the space has ({len(prepared.space)}); ask for "
            "fewer, or leave it out for all"
        )
    return prepared


def drawn_states(spec: SweepSpec, space: SearchSpace) -> list[int]:
    """Indices of the states of a sweep in the order of its draw; fewer are the first of more."""
    order = np.random.default_rng(spec.draw_seed).permutation(len(space))
    return [int(index) for index in order[: spec.states]]


def states_to_do(prepared: PreparedSweep, reach: Reach = ANYWHERE) -> list[int]:
    """Indices of the states of a sweep: as drawn, without those that a table has already.

    Args:
        prepared: the sweep.
        reach: how the table is opened.

    Raises:
        RequestError: the table is out of reach.
        SpecError: the table cannot be read, is of other trainings, or has all of them.
    """
    spec, space = prepared.spec, prepared.space
    drawn = drawn_states(spec, space)
    if spec.without is None:
        return drawn
    table = named_table(spec.without, reach)
    problem = apart(table.card, card_of(spec.to_json(), space, asdict(prepared.context)))
    if problem is not None:
        raise SpecError(f"without ({spec.without}) is a table of other trainings: {problem}")
    schedule = spec.steps[-1]
    known = read_whole(
        table, [(seed, schedule, step) for seed in spec.seeds for step in spec.steps]
    )
    left = [index for index in drawn if space[index] not in known]
    if not left:
        raise SpecError(
            f"without ({spec.without}) has all {len(drawn)} states of this sweep already; ask for "
            "more states, other seeds or steps, or leave it out"
        )
    return left


def create_sweep(prepared: PreparedSweep, database: Database) -> JobRecord:
    """Store a prepared sweep of the command line.

    Raises:
        ConflictError: its name is taken.
        SpecError: the table that it is to go without does not fit.
    """
    states_to_do(prepared)
    with database.write() as session:
        return sweeps.create_sweep(session, prepared.spec.to_json(), name=prepared.spec.name)


def run_stored_sweep(
    sweep_id: str,
    database: Database,
    settings: Settings,
    watchers: Watchers = Watchers(),
    should_stop: Callable[[], bool] = lambda: False,
    at_once: Callable[[], bool] = lambda: False,
) -> SearchStatus:
    """Run a stored sweep of the command line, or go on with it where it was cut off.

    Args:
        sweep_id: of a sweep that is not finished.
        database: where it is stored.
        settings: of this process.
        watchers: who is told what happens.
        should_stop: asked between results, and while inputs are prepared; True pauses it when the
            students that are being trained have come to their end.
        at_once: asked where ``should_stop`` says True; True loses those students' steps.

    Returns:
        The status that it has now; another party may have written it.

    Raises:
        ConflictError: another process works on it, or it was cancelled.
        KdnasError: whatever kept it from going on; its status says so.
    """
    return do_job(
        sweep_id,
        database,
        settings,
        lambda context: run_in(context, watchers),
        should_stop=should_stop,
        at_once=at_once,
    )


def run_in(context: JobContext, watchers: Watchers) -> None:
    """Do the work of a sweep on whose job this process is at work.

    Raises:
        StoppedError: it was to stop.
        KdnasError: whatever kept it from going on.
    """
    prepared, facts = _prepare_stored(context, watchers)
    spec, database = prepared.spec, context.database
    done = database.ask(lambda session: sweeps.swept(session, context.id))
    total = len(facts.drawn) * len(spec.seeds)
    context.end_preparation("starting workers")  # which looks whether it is the first time
    progress = _Progress(context, watchers, total, len(done))
    with cluster_for(spec.backend, context.settings):
        for seed in spec.seeds:
            left = [index for index in facts.drawn if (seed, index) not in done]
            if left:
                training = prepared.with_proxy(spec.proxy_of(seed))
                for event in _trained(context, prepared, training, seed, left):
                    progress(event)
    states = database.ask(lambda session: list(sweeps.swept_states(session, context.id)))
    failed = [state for state in states if state.error is not None]
    if len(failed) == len(states):
        raise TrainingError(
            f"none of the {len(states)} states could be read; the last one: {failed[-1].error}"
        )


def _trained(
    context: JobContext,
    prepared: PreparedSweep,
    training: MiniKDContext,
    seed: int,
    left: Sequence[int],
) -> Iterator[BackendEvent]:
    """Train states under one seed; each result is stored before it is told.

    Raises:
        StoppedError: it was to stop, and students that were being trained have come to their end.
    """
    spec, space, database = prepared.spec, prepared.space, context.database
    name = database.transact(lambda session: losses.save_context(session, training))
    kept = name if spec.trains else None
    requests = {
        str(index): MiniKDRequest(str(index), space[index], spec.steps, last_step=spec.steps[-1])
        for index in left
    }
    backend, at_work = prepared.backend(training, context.settings), StudentsAtWork()
    try:
        while requests:
            for event in backend.run([*requests.values()], lambda: not context.should_stop()):
                at_work.note(event)
                if isinstance(event, CandidateFinished):
                    context.check_lease()
                    del requests[event.result.candidate_id]
                    database.transact(partial(_add_state, context.id, seed, event.result, kept))
                yield event
                if context.at_once() or not at_work.num_training:
                    context.check()
            context.check()
    finally:
        backend.close()


def _add_state(
    sweep_id: str, seed: int, result: MiniKDResult, context: str | None, session: Session
) -> None:
    sweeps.add_state(session, sweep_id, seed, int(result.candidate_id), result, context)


def _prepare_stored(context: JobContext, watchers: Watchers) -> tuple[PreparedSweep, SweepFacts]:
    """Prepare a stored sweep and write down what that has decided.

    Raises:
        StoppedError: it was to stop meanwhile.
        SpecError: its space is another one than when it began.
    """
    database = context.database
    told = watchers.checked(context.check)
    stored = SweepSpec.read(dict(context.spec), context.called)
    prepared = prepare_sweep(stored, context.settings, told.corpus, told.preparing)
    before = database.ask(lambda session: sweeps.sweep_facts(session, context.id))
    _refuse_another_space(context.called, before, prepared)
    for text in prepared.warnings:
        watchers.warning(text)
    context.check()
    database.transact(lambda session: jobs.resolve(session, context.id, prepared.spec.to_json()))
    table = ensure_latencies(
        database,
        prepared.spec.latency,
        prepared.pinned.teacher,
        prepared.space,
        told.latency,
        watchers.waiting,
        context.check,
        began_with=None if before is None else before.latency_profile,
    )
    # What is to be done was settled when it began: the table may have grown since, or be gone.
    reach = context.settings.reach
    drawn = states_to_do(prepared, reach) if before is None else list(before.drawn)
    facts = _facts(prepared, table, drawn)
    database.transact(lambda session: sweeps.set_sweep_facts(session, context.id, facts))
    context.check()
    return prepared, facts


def _facts(prepared: PreparedSweep, table: LatencyTable, drawn: list[int]) -> SweepFacts:
    space = prepared.space
    return SweepFacts(
        axes={axis: list(values) for axis, values in space.axes.items()},
        head_multiple=space.head_multiple,
        num_states=len(space),
        drawn=drawn,
        context=asdict(prepared.context),
        latency_profile=table.profile.fingerprint,
        family=table.family,
        teacher_fingerprint=table.teacher_fingerprint,
        teacher_ms=table.teacher_ms,
        embedding=asdict(EmbeddingShape.of(prepared.pinned.teacher.shape)),
        warnings=list(prepared.warnings),
    )


def _refuse_another_space(what: str, before: SweepFacts | None, prepared: PreparedSweep) -> None:
    """Refuse to go on where indices would mean other states, or losses another training."""
    if before is None:
        return
    space = prepared.space
    changed = [
        f"axis {axis} ({list(before.axes[axis])}, now {list(space.axes[axis])})"
        for axis in AXES
        if list(before.axes[axis]) != list(space.axes[axis])
    ]
    if not changed and before.num_states != len(space):
        changed = [f"the number of states ({before.num_states}, now {len(space)})"]
    if not changed and dict(before.context) != asdict(prepared.context):
        changed = ["what decides losses, such as the version of the program"]
    if changed:
        raise SpecError(
            f"{what} cannot go on: since it began, {', '.join(changed)} changed; start a new sweep"
        )


class _Progress:
    """Says how far a sweep is, in states.

    Args:
        context: of the sweep.
        watchers: who is told as well.
        total: states, each seed's by itself.
        done: before this run.
    """

    def __init__(self, context: JobContext, watchers: Watchers, total: int, done: int) -> None:
        self._context, self._watchers = context, watchers
        self._total, self._done = total, done
        self._at_work = StudentsAtWork()
        context.trains(self._at_work, lambda: self._done, total)
        context.progress(done, total)

    def __call__(self, event: BackendEvent) -> None:
        """Take note of what happened."""
        self._at_work.note(event)
        if isinstance(event, CandidateFinished):
            self._done += 1
            result = event.result
            failure = result.error and f"{result.architecture} failed: {result.error}"
            if failure:
                self._context.warn(failure)
            self._tell("", failure)
            if self._done == self._total:
                self._context.progress(self._done, self._total)
        elif isinstance(event, GroupProgress):
            students = len(event.candidate_ids)
            self._tell(
                event.waits or f"{students} students at step {event.step} of {event.total_steps}"
            )
        elif isinstance(event, AttemptInterrupted):
            students = len(event.candidate_ids)
            self._tell("", f"{students} students are tried again: {event.reason}")

    def _tell(self, text: str, failure: str | None = None) -> None:
        if self._at_work.num_training and self._context.should_stop():
            self._context.ending(self._at_work, self._done, self._total)
        else:
            phase = ": ".join(filter(None, ["reading and training", text]))
            self._context.working(phase, self._done, self._total)
        self._watchers.progress(SweepNews(self._done, self._total, text, failure))

"""Distillations for one task, put together and run: by the command line, or by the coordinator."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.inputs.students import reach_with_students
from api.jobs.context import JobContext, StoppedError
from api.jobs.files import remove_abandoned_files, task_run_folder
from api.jobs.work import do_job
from api.task_distillations.grid import GridProgress, chosen_hyper
from api.task_distillations.kind import KIND
from api.task_distillations.outputs import check_outputs, write_outputs
from api.task_distillations.request import (
    cuts_from_space,
    named_students,
    task_name,
    with_students,
    with_whole_paths,
)
from kdnas.db.engine import Database, Session
from kdnas.db.repository import jobs, task_distillations
from kdnas.errors import SpecError, TrainingError
from kdnas.evaluation.scoring.paired import write_predictions
from kdnas.latency.device_lock import training_lock
from kdnas.records import JobRecord, SearchStatus, TaskFacts, TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.store import Store

if TYPE_CHECKING:
    from workers.task.ready import ReadyTask, TaskProgress
    from workers.task.runs import Outcome

NOTED_SECONDS = 2.0
"""So often at most an event says how far a run is."""


@dataclass(frozen=True)
class TaskWatchers:
    """Who is told what, and nobody else.

    Attributes:
        preparing: how fine-tuning the teacher and warming up its pseudo-classifiers go.
        facts: what that has found out.
        trials: how the grid of a method goes.
        progress: how a run goes.
        run: what a run has come to.
    """

    preparing: Callable[[TaskProgress], None] = lambda _: None
    facts: Callable[[TaskFacts], None] = lambda _: None
    trials: Callable[[GridProgress], None] = lambda _: None
    progress: Callable[[TaskProgress], None] = lambda _: None
    run: Callable[[TaskRun], None] = lambda _: None


def create_task_distillation(
    spec: TaskDistillationSpec,
    database: Database,
    settings: Settings,
    on_wait: Callable[[str], None] = lambda _: None,
) -> JobRecord:
    """Store a request of the command line, once it is known that it can be done.

    An architecture of the space is cut from its teacher meanwhile: whether it can be shows then.

    Args:
        spec: the request.
        database: where it is stored.
        settings: of this process.
        on_wait: is told for whom such a cut waits.

    Raises:
        ConflictError: its name is taken, or a distillation that it names has no student yet.
        NotFoundError: it names a distillation that is not there.
        RequestError: anything in the request that cannot be done, or an output that is used.
    """
    from workers.task.request import check_task

    with database.read() as session:
        whole = with_whole_paths(with_students(spec, session))
    check_outputs(whole)
    with ExitStack() as machine:
        if cuts_from_space(whole):  # which runs the teacher, and must not disturb a measurement
            machine.enter_context(training_lock(on_wait=on_wait))
        check_task(whole, Store.from_settings(settings), settings.reach)
    with database.write() as session:
        return task_distillations.create_task_distillation(
            session, whole.to_json(), task=task_name(whole), name=whole.name
        )


def run_stored_task_distillation(
    job_id: str,
    database: Database,
    settings: Settings,
    watchers: TaskWatchers = TaskWatchers(),
    should_stop: Callable[[], bool] = lambda: False,
) -> SearchStatus:
    """Run stored distillations of the command line, or go on with them where they were cut off.

    Args:
        job_id: of a job that is not finished.
        database: where it is stored.
        settings: of this process.
        watchers: who is told what happens.
        should_stop: asked between steps; True pauses it after a checkpoint.

    Returns:
        The status that it has now; another party may have written it.

    Raises:
        ConflictError: another process works on it, or it was cancelled.
        KdnasError: whatever kept it from going on; its status says so.
    """
    remove_abandoned_files(settings)
    return do_job(
        job_id,
        database,
        settings,
        lambda context: run_in(context, watchers),
        should_stop=should_stop,
        clean_up=KIND.clean_up,
    )


def run_in(context: JobContext, watchers: TaskWatchers = TaskWatchers()) -> None:
    """Do the work of distillations for a task on whose job this process is at work.

    Every seed is done by all methods before the next one, so that there is soon something to
    compare. Methods for which the teacher has to be run learn beside each other.

    Raises:
        StoppedError: they were to stop.
        KdnasError: whatever kept them from going on.
    """
    from workers.task.runs import groups_of, let_go

    database, settings = context.database, context.settings
    stored = TaskDistillationSpec.read(dict(context.spec), context.called)
    check_outputs(stored, settings, context.id)
    ready = _prepare_stored(context, stored, watchers)
    done = database.ask(lambda session: task_distillations.finished_runs(session, context.id))
    spec = ready.spec
    total = len(spec.methods) * len(spec.seeds)
    for method, seed in done:  # a kill may have come between
        let_go(task_run_folder(settings, context.id, method, seed))
    context.end_preparation("training")  # which looks whether it is the first time
    context.progress(len(done), total)
    for seed in spec.seeds:
        for group in groups_of(ready):
            methods = tuple(method for method in group if (method, seed) not in done)
            if methods:
                progress = _Progress(context, watchers, methods, seed, len(done), total)
                for run in _store_runs(context, _trained(context, ready, progress)):
                    folder = task_run_folder(settings, context.id, run.method, seed)
                    if run.error is None:
                        let_go(folder)
                    else:  # to which its checkpoints would lead again
                        shutil.rmtree(folder, ignore_errors=True)
                    watchers.run(run)
                    done.add((run.method, seed))
                context.progress(len(done), total)
                context.check()
    runs = database.ask(lambda session: task_distillations.task_runs(session, context.id))
    failed = [run for run in runs if run.error is not None]
    if len(failed) == total:
        raise TrainingError(
            f"none of the {total} runs came to anything; the last one: {failed[-1].error}"
        )
    write_outputs(spec, context.id, runs, settings)


def _prepare_stored(
    context: JobContext, stored: TaskDistillationSpec, watchers: TaskWatchers
) -> ReadyTask:
    """Prepare stored distillations and write down what that has decided.

    Raises:
        StoppedError: they were to stop meanwhile.
        SpecError: they would be others than when they began.
    """
    from workers.task.ready import TaskProgress, prepare_for_task

    def tell(progress: TaskProgress) -> None:
        share = progress.done / progress.total if progress.total else None
        context.phase(f"{progress.phase}: {progress.done} of {progress.total}", share)
        watchers.preparing(progress)

    students = [text for _, text in named_students(stored)]
    reach = reach_with_students(students, context.database, context.settings)

    def waits(text: str) -> None:
        watchers.preparing(TaskProgress(text, 0, 1))

    with context.training(waits):
        ready = prepare_for_task(stored, context.settings, tell, context.should_stop, reach)
    if ready is None:
        raise StoppedError
    database, facts = context.database, ready.facts
    before = database.ask(lambda session: task_distillations.task_facts(session, context.id))
    _refuse_others(context.called, before, facts)
    for text in facts.warnings:
        context.warn(text)
    context.check()

    def write(session: Session) -> None:
        jobs.resolve(session, context.id, ready.spec.to_json())
        task_distillations.set_task_facts(session, context.id, facts)

    database.transact(write)
    watchers.facts(facts)
    return ready


def _refuse_others(what: str, before: TaskFacts | None, facts: TaskFacts) -> None:
    """Refuse to go on where the runs that are done would be of another training."""
    if before is None:
        return
    then, now = _deciding(before), _deciding(facts)
    changed = [name for name in then if then[name] != now[name]]
    if changed:
        raise SpecError(
            f"{what} cannot go on: since it began, {' and '.join(changed)} changed; start a new one"
        )


def _deciding(facts: TaskFacts) -> dict[str, Any]:
    """What decides what a run comes to, as plain JSON; whichever device trains it."""
    plain = json.loads(json.dumps(facts.to_json()))  # tuples are lists there
    settings = {key: value for key, value in plain["settings"].items() if key != "device"}
    decides = {
        "the data": plain["data"],
        "the teacher": plain["teacher"]["fingerprint"],
        "hyper-parameters": settings,
    }
    # What earlier versions did not write down is not compared.
    for name, entry in (("the student", "fingerprint"), ("the assistant", "assistant")):
        if entry in plain["student"]:
            decides[name] = plain["student"][entry]
    return decides


def _trained(context: JobContext, ready: ReadyTask, progress: _Progress) -> list[TaskRun]:
    """Do runs beside each other and keep their predictions; one that cannot be trained says why.

    Before the first run of a method its grid is tried, if there is one; such a run is alone.

    Raises:
        StoppedError: they were to stop, after a checkpoint.
    """
    from workers.task.runs import do_runs

    first, seed = progress.methods[0], progress.seed
    folders = {
        method: task_run_folder(context.settings, context.id, method, seed)
        for method in progress.methods
    }
    outcomes: dict[str, Outcome] | None
    try:
        hyper = chosen_hyper(context, ready, first, seed, progress.of_grid)
    except TrainingError as error:
        outcomes = {first: error}
    else:
        with context.training(progress.waits):
            outcomes = do_runs(ready, folders, seed, progress, context.should_stop, hyper)
    if outcomes is None:
        raise StoppedError
    context.check_lease()
    return [
        _kept(context, method, seed, folders[method], outcome)
        for method, outcome in outcomes.items()
    ]


def _kept(context: JobContext, method: str, seed: int, folder: Path, outcome: Outcome) -> TaskRun:
    """Keep the predictions of a run that has come to its end."""
    if isinstance(outcome, TrainingError):
        context.warn(f"{method} with seed {seed} failed: {outcome}")
        return TaskRun(method, seed, error=str(outcome))
    write_predictions(folder, outcome.result)
    return outcome.run


def _store_runs(context: JobContext, runs: list[TaskRun]) -> list[TaskRun]:
    """Store runs that were done beside each other: all of them, or none if this is killed."""

    def write(session: Session) -> None:
        for run in runs:
            task_distillations.add_run(session, context.id, run)
            context.event_in(session, "run", {name: getattr(run, name) for name in shown})

    shown = ("method", "seed", "main", "held_out", "error")
    context.database.transact(write)
    return runs


class _Progress:
    """Says how far a run is: every new phase, else now and then.

    Args:
        context: of the job.
        watchers: who is told as well, of all of it.
        methods: of the runs.
        seed: of them.
        done: runs that are done.
        total: runs that there are.
    """

    def __init__(
        self,
        context: JobContext,
        watchers: TaskWatchers,
        methods: tuple[str, ...],
        seed: int,
        done: int,
        total: int,
    ) -> None:
        self.methods, self.seed = methods, seed
        self._context, self._watchers = context, watchers
        self._done, self._total = done, total
        self._phase, self._at = "", 0.0

    def __call__(self, progress: TaskProgress) -> None:
        """Take note of how far the run is."""
        self._watchers.progress(progress)
        loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
        text = f"{progress.phase}, {progress.done} of {progress.total}{loss}"
        self._context.working(f"training: {text}", self._done, self._total)
        now = time.monotonic()
        if progress.phase == self._phase and now - self._at < NOTED_SECONDS:
            return
        self._phase, self._at = progress.phase, now
        told = {name: getattr(progress, name) for name in ("phase", "done", "total", "loss")}
        of = {"method": ", ".join(self.methods), "seed": self.seed}
        self._context.passing_event("progress", {**of, **told})

    def waits(self, text: str) -> None:
        """Take note of what the run waits for; the job says so itself."""
        from workers.task.ready import TaskProgress

        self._watchers.progress(TaskProgress(text, 0, 1))

    def of_grid(self, progress: GridProgress) -> None:
        """Take note of how far the trials are that decide what the run is trained with."""
        self._watchers.trials(progress)
        what = f"trials of the grid of {progress.method}"
        of = f"{progress.done} of {progress.total}"
        self._context.working(f"{what}: {progress.waits or of}", self._done, self._total)
        if progress.last is not None:
            trial, counts = progress.last, {"done": progress.done, "total": progress.total}
            told = {**asdict(trial.point), "held_out": trial.held_out, "ending": trial.ending}
            self._context.event("trial", {"method": progress.method, **told, **counts})

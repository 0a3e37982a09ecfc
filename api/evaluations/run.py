"""One pair of task and seed: an evaluation as it is stored, or one of a whole of the command line.

What is known is looked up, and what was begun is gone on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from api.evaluations.grid import chosen_trial
from api.evaluations.kind import KIND
from api.evaluations.prepare import PlannedTask, PreparedEvaluation, prepare_evaluation
from api.evaluations.report import add_to_card, figures_before
from api.evaluations.stored_report import stored_report
from api.inputs.students import reach_with_students
from api.jobs.context import JobContext, StoppedError, StoppedStatus
from api.jobs.files import (
    evaluation_checkpoints,
    evaluation_folder,
    remove_evaluation_checkpoints,
)
from api.jobs.work import at_work, do_job
from kdnas.db.engine import Database, Session
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations, jobs
from kdnas.errors import NoRoomError
from kdnas.evaluation.finetuning.grid import GRID_SEED
from kdnas.evaluation.finetuning.run import KEPT_MODEL, finetune
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.finetuning.waiting import StoppedWaitingError, training_when_free
from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import write_predictions
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.untrained.run import score_untrained
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.store import Store

NOTED_SECONDS = 2.0

OnProgress = Callable[[PlannedTask, int, FinetuneProgress], None]
FineTune = Callable[..., TaskResult | None]
"""As ``workers.finetuning.finetune_on_cluster`` with model, data, device and threads filled in."""

log = structlog.get_logger("kdnas.evaluation")


@dataclass(frozen=True, slots=True)
class FinishedPair:
    """A task and a seed with their figures.

    Attributes:
        record: the stored row.
        result: the figures, without predictions.
        known: whether they were there before this run.
    """

    record: EvaluationRecord
    result: TaskResult
    known: bool


@dataclass(frozen=True)
class Ready:
    """A task that can be worked on.

    Attributes:
        data: of the task.
        hyper: what it is fine-tuned with.
        fine_tune: trains somewhere else; None trains in this process.
    """

    data: TaskData
    hyper: FinetuneSettings
    fine_tune: FineTune | None = None


@dataclass(frozen=True)
class Evaluator:
    """Does pairs of task and seed of an evaluation, one at a time.

    Attributes:
        prepared: model and tasks.
        database: where figures are stored, and looked up.
        settings: of this process.
        on_progress: is told how a fine-tuning goes.
        should_stop: asked between steps; True ends the work after a checkpoint.
        for_service: whether a coordinator has other work done where this would have to wait.
    """

    prepared: PreparedEvaluation
    database: Database
    settings: Settings
    on_progress: OnProgress = lambda *_: None
    should_stop: Callable[[], bool] = lambda: False
    for_service: bool = False

    def made_ready(self, planned: PlannedTask) -> Ready | None:
        """Read a task's data and try its grid, if it has one; None if that was stopped.

        Raises:
            TaskDataError: data have changed meanwhile.
            KdnasError: see ``grid.chosen_trial``.
        """
        data = self.prepared.unchanged_data(planned)
        if planned.settings.grid is None:
            return Ready(data, planned.settings)
        trial = chosen_trial(
            self.prepared,
            planned,
            data,
            self.database,
            self.settings,
            lambda progress: self.on_progress(planned, GRID_SEED, progress),
            self.should_stop,
            for_service=self.for_service,
        )
        return None if trial is None else Ready(data, trial.point.applied_to(planned.settings))

    def take_and_do(self, planned: PlannedTask, seed: int, ready: Ready) -> FinishedPair | None:
        """Do a pair for the command line, on its row or a new one; None if it was stopped.

        One that the service was to do is left for a coordinator to take up.

        Raises:
            ConflictError: another process works on it.
            KdnasError: it failed, and its row says why.
        """
        spec, database = self.prepared.spec, self.database
        record = database.transact(
            lambda session: evaluations.take_evaluation(
                session,
                self.prepared.what_decides(planned, seed),
                model=spec.model_name,
                suite=planned.task.suite,
                task=planned.task.name,
                seed=seed,
                distillation_id=self.prepared.distillation_id,
            )
        )
        if record.status == "succeeded":  # somebody else was quicker
            return FinishedPair(record, TaskResult.from_json(record.metrics), known=True)
        if self.should_stop():
            return None
        wanted = record.owner_kind == "service" and record.status in {"queued", "running"}
        after: StoppedStatus = "running" if wanted else "paused"
        with at_work(database, self.settings, record.id, None, self.should_stop, after) as context:
            return self.do(record, planned, ready, context)

    def do(
        self,
        record: EvaluationRecord,
        planned: PlannedTask,
        ready: Ready,
        context: JobContext,
        figures: ModelFigures | None = None,
    ) -> FinishedPair | None:
        """Do a pair on whose row this process is at work.

        Returns:
            Its figures; None if it was stopped, and its row says what it is then.

        Raises:
            ConflictError: another process took it over.
            KdnasError: it failed.
        """
        result = self._result(record, planned, ready, context.should_stop)
        if result is None:
            if context.rest() == "cancelled":
                remove_evaluation_checkpoints(self.settings, record.id)
            return None
        if figures is not None:
            result = replace(result, figures=figures)
        context.check_lease()
        write_predictions(evaluation_folder(self.settings, record.id), result)

        def store(session: Session) -> tuple[SearchStatus, EvaluationRecord]:
            present = jobs.locked_job(session, record.id).status
            if present != "running":
                return present, record
            return present, evaluations.set_figures(session, record.id, result.to_json())

        present, record = self.database.transact(store)
        if present in {"paused", "queued"}:  # paused at its last moment, perhaps resumed already
            return None
        remove_evaluation_checkpoints(self.settings, record.id)
        return None if present == "cancelled" else FinishedPair(record, result, known=False)

    def _result(
        self,
        record: EvaluationRecord,
        planned: PlannedTask,
        ready: Ready,
        should_stop: Callable[[], bool],
    ) -> TaskResult | None:
        prepared, data, hyper = self.prepared, ready.data, ready.hyper
        place = evaluation_checkpoints(self.settings, record.id)
        # A model or data that have changed since it was stopped are learned anew.
        checkpoints = place / prepared.what_decides(planned, record.seed)[evaluations.KEY]
        told: dict[str, Any] = {
            "int8": prepared.spec.int8,
            "on_progress": lambda progress: self.on_progress(planned, record.seed, progress),
            "should_stop": should_stop,
        }
        here: dict[str, Any] = {"device": prepared.device, "threads": prepared.spec.threads}
        keep = place.with_name(KEPT_MODEL) if prepared.keeps else None
        if ready.fine_tune is not None and planned.task.fine_tuned:
            return ready.fine_tune(hyper, record.seed, checkpoints, keep=keep, **told)
        try:
            with training_when_free(told["on_progress"], should_stop):
                if not planned.task.fine_tuned:
                    return score_untrained(
                        prepared.model, data, hyper, reach=prepared.reach, **here, **told
                    )
                return finetune(
                    prepared.model, data, hyper, record.seed, checkpoints, keep=keep, **here, **told
                )
        except StoppedWaitingError:
            return None


def run_stored_evaluation(
    evaluation_id: str,
    database: Database,
    settings: Settings,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FinetuneProgress], None] = lambda _: None,
) -> SearchStatus:
    """Do a stored evaluation of the command line; one that is known is looked up.

    Args:
        evaluation_id: of an evaluation that is not finished.
        database: where it is stored.
        settings: of this process.
        should_stop: asked between steps; True pauses it after a checkpoint.
        on_progress: is told how it goes.

    Returns:
        The status that it has now.

    Raises:
        ConflictError: somebody else works on it.
        KdnasError: it failed; its job says why.
    """
    return do_job(
        evaluation_id,
        database,
        settings,
        lambda context: run_in(context, on_progress),
        should_stop=should_stop,
        clean_up=KIND.clean_up,
    )


def run_in(
    context: JobContext, on_progress: Callable[[FinetuneProgress], None] = lambda _: None
) -> None:
    """Read model and data, and do what is not known yet.

    Raises:
        StoppedError: it was to stop.
        NoRoomError: an older one comes to the same figures, and this one is for the service.
    """
    database, settings = context.database, context.settings
    record = database.ask(lambda session: evaluations.get_evaluation(session, context.id))
    noted = Noted(database, record.id, on_progress)

    def on_task(name: str) -> None:
        context.check()
        noted(FinetuneProgress("reading data", 0, 1))

    request = EvaluationSpec.read(dict(record.requested), f"evaluation {record.id}")
    reach = reach_with_students([request.model.ref], database, settings)
    store = Store.from_settings(settings) if reach.limited else None
    prepared = prepare_evaluation(request, on_task, store, reach)
    context.check()
    (planned,) = prepared.tasks
    about = prepared.what_decides(planned, record.seed)

    def begin(session: Session) -> tuple[bool, bool]:
        if jobs.locked_job(session, record.id).status != "running":
            raise StoppedError  # known figures are looked up when it is resumed
        evaluations.note_prepared(session, record.id, about, prepared.distillation_id)
        # Asked before the figures are looked for, so that one that ends in between is found.
        twice = context.claimed and evaluations.is_older_at_work(session, record.id)
        known = evaluations.find_finished(session, about[evaluations.KEY], record.task, record.seed)
        if known is not None:
            evaluations.set_figures(session, record.id, known.metrics)
        return known is not None, twice

    is_known, is_done_elsewhere = database.transact(begin)
    if is_known:
        return
    if is_done_elsewhere:
        raise NoRoomError(
            "another evaluation does the same at present; this one goes on when that has ended"
        )
    context.check()
    evaluator = Evaluator(
        prepared,
        database,
        settings,
        lambda planned, seed, progress: noted(progress),
        context.should_stop,
        for_service=context.claimed,
    )
    ready = evaluator.made_ready(planned)
    if ready is None:
        raise StoppedError
    context.check()
    figures = figures_before(prepared, database)
    context.check()
    context.end_preparation("evaluating")
    if evaluator.do(record, planned, ready, context, figures) is None:
        raise StoppedError
    report = database.ask(
        lambda session: stored_report(session, settings, record.model, record.suite, ())
    )
    problem = add_to_card(prepared, report)
    if problem is not None:
        log.warning(problem, evaluation=record.id)


class Noted:
    """Writes down how far an evaluation is, with an event: every new phase, else now and then.

    Args:
        database: where it is stored.
        evaluation_id: the row.
        also: is told all of it.
    """

    def __init__(
        self, database: Database, evaluation_id: str, also: Callable[[FinetuneProgress], None]
    ) -> None:
        self._database, self._id, self._also = database, evaluation_id, also
        self._phase, self._at = "", 0.0

    def __call__(self, progress: FinetuneProgress) -> None:
        """Note progress, unless the same phase was noted a moment ago."""
        self._also(progress)
        now = time.monotonic()
        if progress.phase == self._phase and now - self._at < NOTED_SECONDS:
            return
        self._phase, self._at = progress.phase, now
        self._database.note(
            lambda session: evaluations.note_evaluation_progress(
                session, self._id, progress.phase, progress.done, progress.total, progress.loss
            )
        )

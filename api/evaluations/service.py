"""One evaluation that is stored as a request: a model on a task with a seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from api.evaluations.kind import KIND
from api.evaluations.model_figures import figures_before, keep_figures
from api.evaluations.prepare import PlannedTask, prepare_evaluation
from api.evaluations.run import (
    evaluate_pair,
    hyper_parameters,
    unchanged_data,
    what_decides,
)
from api.evaluations.stored_report import stored_report
from api.evaluations.student_card import add_to_card
from api.jobs.context import JobContext, StoppedError
from api.jobs.work import do_job
from kdnas.db.engine import Database
from kdnas.db.repository import distillations, evaluations, jobs
from kdnas.errors import NoRoomError
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.reach import Reach
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.store import Store

NOTED_SECONDS = 2.0

log = structlog.get_logger("kdnas.evaluation")


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
    with database.read() as session:
        record = evaluations.get_evaluation(session, context.id)
    noted = Noted(database, record.id, on_progress)

    def on_task(name: str) -> None:
        context.check()
        noted(FinetuneProgress("reading data", 0, 1))

    request = EvaluationSpec.read(dict(record.requested), f"evaluation {record.id}")
    reach = _reach(request, database, settings)
    store = Store.from_settings(settings) if reach.limited else None
    prepared = prepare_evaluation(request, on_task, store, reach)
    context.check()
    (planned,) = prepared.tasks
    about = what_decides(prepared, planned, record.seed)
    with database.write() as session:
        if jobs.locked_job(session, record.id).status != "running":
            raise StoppedError  # known figures are looked up when it is resumed
        evaluations.note_prepared(session, record.id, about, prepared.distillation_id)
        # Asked before the figures are looked for, so that one that ends in between is found.
        twice = context.claimed and evaluations.is_older_at_work(session, record.id)
        known = evaluations.find_finished(session, about[evaluations.KEY], record.task, record.seed)
        if known is not None:
            evaluations.set_figures(session, record.id, known.metrics)
            return
    if twice:
        raise NoRoomError(
            "another evaluation does the same at present; this one goes on when that has ended"
        )
    context.check()

    def tell(planned: PlannedTask, seed: int, progress: FinetuneProgress) -> None:
        noted(progress)

    data = unchanged_data(prepared, planned)
    context.check()
    hyper = hyper_parameters(
        prepared,
        planned,
        data,
        database,
        settings,
        tell,
        context.should_stop,
        for_service=context.claimed,
    )
    if hyper is None:
        raise StoppedError
    figures = figures_before(prepared, database)
    context.check()
    done = evaluate_pair(record, prepared, planned, data, database, settings, tell, context, hyper)
    if done is None:
        raise StoppedError
    keep_figures(figures, record.id, database)
    with database.read() as session:
        report = stored_report(session, settings, record.model, record.suite, ())
    problem = add_to_card(prepared, report)
    if problem is not None:
        log.warning(problem, evaluation=record.id)


def _reach(request: EvaluationSpec, database: Database, settings: Settings) -> Reach:
    """Say what the request may lead to: beside the data roots a student of the command line.

    One that is named by its run may be read wherever the command has put it.
    """
    folder, reach = Path(request.model.ref), settings.reach
    if not reach.limited:
        return reach
    with database.read() as session:
        made = distillations.is_output_of_command(session, str(folder))
    return reach.and_folder(folder) if made else reach


class Noted:
    """Writes down how far an evaluation is, with an event: every new phase, else now and then.

    Args:
        database: where it is stored.
        evaluation_id: the row.
        also: is told all of it.
    """

    def __init__(
        self,
        database: Database,
        evaluation_id: str,
        also: Callable[[FinetuneProgress], None] = lambda _: None,
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
        with self._database.write() as session:
            evaluations.note_evaluation_progress(
                session, self._id, progress.phase, progress.done, progress.total, progress.loss
            )

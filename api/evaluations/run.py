"""An evaluation, task by task and seed by seed; what was finished before is not done again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from api.evaluations.grid import chosen_trial
from api.evaluations.prepare import PlannedTask, PreparedEvaluation, read_data
from api.jobs.context import JobContext, StoppedStatus
from api.jobs.files import (
    PREDICTIONS_FILE,
    evaluation_checkpoints,
    evaluation_folder,
    remove_evaluation_checkpoints,
)
from api.jobs.work import at_work
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations, jobs
from kdnas.errors import TaskDataError
from kdnas.evaluation.finetuning.grid import GRID_SEED
from kdnas.evaluation.finetuning.identity import data_fingerprint
from kdnas.evaluation.finetuning.run import KEPT_MODEL, finetune
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.sts_cosine import score_by_cosine
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.latency.device_lock import training_lock
from kdnas.settings import Settings


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


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """How an evaluation ended.

    Attributes:
        finished: all pairs that have figures.
        stopped: whether pairs are left because this run was to stop.
    """

    finished: tuple[FinishedPair, ...]
    stopped: bool


OnProgress = Callable[[PlannedTask, int, FinetuneProgress], None]
FineTune = Callable[..., TaskResult | None]
"""As ``workers.finetuning.finetune_on_cluster`` with model, data, device and threads filled in."""


def run_evaluation(
    prepared: PreparedEvaluation,
    database: Database,
    settings: Settings,
    on_progress: OnProgress = lambda *_: None,
    on_finished: Callable[[FinishedPair], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvaluationOutcome:
    """Fine-tune and score a model on every planned task with every seed.

    Args:
        prepared: model and tasks.
        database: where figures are stored, and looked up.
        settings: of this process.
        on_progress: is told how a fine-tuning goes.
        on_finished: is told the figures of each pair of task and seed.
        should_stop: asked between steps; True ends this run after a checkpoint.

    Raises:
        ConflictError: another process works on one of them.
        TaskDataError: data have changed meanwhile.
        KdnasError: a fine-tuning failed; its row says why, and finished ones are kept.
    """
    finished: list[FinishedPair] = []
    for planned in prepared.tasks:
        data: TaskData | None = None
        hyper: FinetuneSettings | None = None
        for seed in planned.seeds(prepared.spec.seeds):
            record = take(prepared, planned, seed, database)
            if record.status == "succeeded":
                pair = FinishedPair(record, TaskResult.from_json(record.metrics), known=True)
            else:
                if should_stop():
                    return EvaluationOutcome(tuple(finished), stopped=True)
                data = data or unchanged_data(prepared, planned)
                hyper = hyper or hyper_parameters(
                    prepared, planned, data, database, settings, on_progress, should_stop
                )
                if hyper is None:
                    return EvaluationOutcome(tuple(finished), stopped=True)
                with at_work(
                    database, settings, record.id, None, should_stop, stopped_status(record)
                ) as work:
                    pair_or_none = evaluate_pair(
                        record, prepared, planned, data, database, settings, on_progress, work,
                        hyper,
                    )  # fmt: skip
                if pair_or_none is None:
                    return EvaluationOutcome(tuple(finished), stopped=True)
                pair = pair_or_none
            finished.append(pair)
            on_finished(pair)
    return EvaluationOutcome(tuple(finished), stopped=False)


def find_pair(
    prepared: PreparedEvaluation, planned: PlannedTask, seed: int, database: Database
) -> FinishedPair | None:
    """Look up the figures of a pair; None if there are none yet."""
    key = what_decides(prepared, planned, seed)[evaluations.KEY]
    with database.read() as session:
        found = evaluations.find_finished(session, key, planned.task.name, seed)
    if found is None:
        return None
    return FinishedPair(found, TaskResult.from_json(found.metrics), known=True)


def take(
    prepared: PreparedEvaluation, planned: PlannedTask, seed: int, database: Database
) -> EvaluationRecord:
    """Find the row of a pair that was begun before, or write a queued one."""
    with database.write() as session:
        return evaluations.take_evaluation(
            session,
            what_decides(prepared, planned, seed),
            model=prepared.spec.model_name,
            suite=planned.task.suite,
            task=planned.task.name,
            seed=seed,
            distillation_id=prepared.distillation_id,
        )


def stopped_status(record: EvaluationRecord) -> StoppedStatus:
    """Say what a row is after the command line has stopped its work on it.

    One that the service was to do is left for a coordinator to take up.
    """
    wanted = record.owner_kind == "service" and record.status in {"queued", "running"}
    return "running" if wanted else "paused"


def what_decides(prepared: PreparedEvaluation, planned: PlannedTask, seed: int) -> dict[str, Any]:
    """Say what decides the figures of a pair, with the key by which they are found again."""
    return {
        evaluations.KEY: planned.key(prepared.model, seed, prepared.spec.variant),
        "model": prepared.spec.model.to_json(),
        "variant": prepared.spec.variant,
        "data": planned.data,
        "settings": planned.settings.to_json(),
    }


def unchanged_data(prepared: PreparedEvaluation, planned: PlannedTask) -> TaskData:
    """Read the data of a planned task.

    Raises:
        TaskDataError: they are not those that were planned with, or not there any more.
    """
    data = read_data(prepared.spec, planned.task, prepared.reach)
    if data_fingerprint(data, tuned=planned.settings.tuned) != planned.data:
        raise TaskDataError(
            f"the data of {planned.task.name} in {', '.join(data.sources)} have changed since they "
            "were first read; run the command again"
        )
    return data


def hyper_parameters(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
    *,
    for_service: bool = False,
) -> FinetuneSettings | None:
    """Return what a task is fine-tuned with, after its grid was tried if it has one.

    Arguments and errors are those of ``grid_run.chosen_trial``.

    Returns:
        The hyper-parameters; None if this run was to stop.
    """
    if planned.settings.grid is None:
        return planned.settings
    trial = chosen_trial(
        prepared,
        planned,
        data,
        database,
        settings,
        lambda progress: on_progress(planned, GRID_SEED, progress),
        should_stop,
        for_service=for_service,
    )
    return None if trial is None else trial.point.applied_to(planned.settings)


def evaluate_pair(
    record: EvaluationRecord,
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    work: JobContext,
    hyper: FinetuneSettings,
    fine_tune: FineTune | None = None,
) -> FinishedPair | None:
    """Do one pair of task and seed, on whose row this process is at work.

    Args:
        record: the row.
        prepared: the evaluation.
        planned: the task.
        data: of the task.
        database: where figures are stored.
        settings: of this process.
        on_progress: is told how it goes.
        work: on the row.
        hyper: hyper-parameters that were chosen.
        fine_tune: trains somewhere else; None trains in this process.

    Returns:
        Its figures; None if it was stopped, and its row says what it is then.

    Raises:
        ConflictError: another process took it over.
        KdnasError: it failed.
    """
    result = _evaluate(
        prepared,
        planned,
        data,
        record.seed,
        evaluation_checkpoints(settings, record.id),
        lambda progress: on_progress(planned, record.seed, progress),
        work.should_stop,
        hyper,
        fine_tune,
    )
    if result is None:
        if work.rest() == "cancelled":
            remove_evaluation_checkpoints(settings, record.id)
        return None
    work.check_lease()
    _write_predictions(evaluation_folder(settings, record.id), result)
    with database.write() as session:
        present = jobs.locked_job(session, record.id).status
        if present == "running":
            record = evaluations.set_figures(session, record.id, result.to_json())
    if present in {"paused", "queued"}:  # paused at its last moment, and perhaps resumed already
        return None
    remove_evaluation_checkpoints(settings, record.id)
    return None if present == "cancelled" else FinishedPair(record, result, known=False)


def _evaluate(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    seed: int,
    checkpoints: Path,
    on_progress: Callable[[FinetuneProgress], None],
    should_stop: Callable[[], bool],
    hyper: FinetuneSettings,
    fine_tune: FineTune | None,
) -> TaskResult | None:
    told: dict[str, Any] = {"on_progress": on_progress, "should_stop": should_stop}
    here: dict[str, Any] = {"device": prepared.device, "threads": prepared.spec.threads}
    int8 = prepared.spec.int8
    own: dict[str, Any] = {
        "int8": int8,
        "keep": checkpoints.with_name(KEPT_MODEL) if prepared.keeps else None,
    }
    if fine_tune is not None and planned.task.fine_tuned:
        return fine_tune(hyper, seed, checkpoints, **own, **told)
    with training_lock():
        if not planned.task.fine_tuned:
            return score_by_cosine(prepared.model, data, hyper, int8=int8, **here, **told)
        return finetune(prepared.model, data, hyper, seed, checkpoints, **own, **here, **told)


def _write_predictions(folder: Path, result: TaskResult) -> None:
    """Keep what was said about each example, a line each; all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{PREDICTIONS_FILE}.draft"
    with draft.open("w", encoding="utf-8") as stream:
        for name, predictions in result.predictions.items():
            for p in predictions:
                line = {"set": name, **asdict(p)}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    draft.replace(folder / PREDICTIONS_FILE)

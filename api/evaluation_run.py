"""An evaluation, task by task and seed by seed; what was finished before is not done again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from api.evaluation_preparation import PlannedTask, PreparedEvaluation, read_data
from api.lease import held_lease
from kdnas.db.engine import Database
from kdnas.db.models import Evaluation
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.db.repository.leases import LeaseOwner
from kdnas.errors import ConflictError, DatabaseError, KdnasError
from kdnas.evaluation.examples import TaskData
from kdnas.evaluation.finetune import finetune
from kdnas.evaluation.identity import data_fingerprint
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.sts_cosine import score_by_cosine
from kdnas.evaluation.training import FinetuneProgress
from kdnas.latency.device_lock import training_lock
from kdnas.settings import Settings

PREDICTIONS_FILE = "predictions.jsonl"


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
        ConflictError: another process works on one of them, or data have changed meanwhile.
        KdnasError: a fine-tuning failed; its row says why, and finished ones are kept.
    """
    finished: list[FinishedPair] = []
    for planned in prepared.tasks:
        data: TaskData | None = None
        for seed in planned.seeds(prepared.spec.seeds):
            record = _take(prepared, planned, seed, database)
            if record.status == "succeeded":
                pair = FinishedPair(record, TaskResult.from_json(record.metrics), known=True)
            else:
                if should_stop():
                    return EvaluationOutcome(tuple(finished), stopped=True)
                data = data or _unchanged_data(prepared, planned)
                pair_or_none = _work(
                    record, prepared, planned, data, database, settings, on_progress, should_stop
                )
                if pair_or_none is None:
                    return EvaluationOutcome(tuple(finished), stopped=True)
                pair = pair_or_none
            finished.append(pair)
            on_finished(pair)
    return EvaluationOutcome(tuple(finished), stopped=False)


def evaluation_folder(settings: Settings, evaluation_id: str) -> Path:
    """Return where an evaluation keeps its checkpoints, and later its predictions."""
    return settings.home / "evaluations" / evaluation_id


def _take(
    prepared: PreparedEvaluation, planned: PlannedTask, seed: int, database: Database
) -> EvaluationRecord:
    spec = {
        evaluations.KEY: planned.key(prepared.model.fingerprint, seed),
        "model": prepared.spec.model.to_json(),
        "data": planned.data,
        "settings": planned.settings.to_json(),
    }
    with database.write() as session:
        return evaluations.take_evaluation(
            session,
            spec,
            model=prepared.spec.model.ref,
            suite=planned.task.suite,
            task=planned.task.name,
            seed=seed,
            distillation_id=prepared.distillation_id,
        )


def _unchanged_data(prepared: PreparedEvaluation, planned: PlannedTask) -> TaskData:
    data = read_data(prepared.spec, planned.task)
    if data_fingerprint(data) != planned.data:
        raise ConflictError(
            f"the data of {planned.task.name} in {', '.join(data.sources)} have changed since they "
            "were first read; run the command again"
        )
    return data


def _work(
    record: EvaluationRecord,
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
) -> FinishedPair | None:
    """Do one pair of task and seed; None if it was stopped."""
    folder = evaluation_folder(settings, record.id)
    owner = LeaseOwner.of_this_process("cli")
    with held_lease(database, Evaluation, record.id, owner) as lost:
        with database.write() as session:
            evaluations.set_evaluation_status(session, record.id, "running")
        try:
            with training_lock():
                result = _evaluate(
                    prepared,
                    planned,
                    data,
                    record.seed,
                    folder / "checkpoints",
                    lambda progress: on_progress(planned, record.seed, progress),
                    lambda: lost.is_set() or should_stop(),
                )
            if lost.is_set():
                raise ConflictError(
                    f"another process took over the evaluation on {record.task} with seed "
                    f"{record.seed}; this one has stopped"
                )
            if result is not None:
                _write_predictions(folder, result)
        except (ConflictError, DatabaseError):
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, KdnasError) else repr(error)
            with database.write() as session:
                evaluations.set_evaluation_status(session, record.id, "failed", reason)
            raise
        with database.write() as session:
            if result is None:
                evaluations.set_evaluation_status(session, record.id, "paused")
                return None
            record = evaluations.set_evaluation_status(
                session, record.id, "succeeded", metrics=result.to_json()
            )
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return FinishedPair(record, result, known=False)


def _evaluate(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    seed: int,
    checkpoints: Path,
    on_progress: Callable[[FinetuneProgress], None],
    should_stop: Callable[[], bool],
) -> TaskResult | None:
    device, threads = prepared.device, prepared.spec.threads
    if not planned.task.fine_tuned:
        return score_by_cosine(
            prepared.model,
            data,
            planned.settings,
            device=device,
            threads=threads,
            on_progress=on_progress,
            should_stop=should_stop,
        )
    return finetune(
        prepared.model,
        data,
        planned.settings,
        seed,
        checkpoints,
        device=device,
        threads=threads,
        on_progress=on_progress,
        should_stop=should_stop,
    )


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

"""What is stored of finished work and reports are made of; loads no torch."""

from __future__ import annotations

from collections.abc import Iterable

from api.jobs.files import evaluation_folder
from kdnas.db.engine import Session
from kdnas.db.records import DistillationRecord, EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import PREDICTIONS_FILE, Kept
from kdnas.search.checks import not_learned
from kdnas.settings import Settings


def task_results(records: Iterable[EvaluationRecord]) -> tuple[TaskResult, ...]:
    """Read the results of those that have succeeded, in their order."""
    return tuple(TaskResult.from_json(r.metrics) for r in records if r.status == "succeeded")


def prediction_files(
    session: Session, records: Iterable[EvaluationRecord], settings: Settings
) -> dict[tuple[str, int], Kept]:
    """Find the predictions that lie on this machine, below ``KDNAS_HOME/evaluations``.

    What was looked up in place of being done again has them where it was done first.

    Args:
        session: of any transaction.
        records: evaluations of one model; those count that have succeeded.
        settings: of this process.

    Returns:
        Task and seed → predictions.
    """
    found = {}
    for record in (one for one in records if one.status == "succeeded"):
        file = evaluation_folder(settings, record.id) / PREDICTIONS_FILE
        if not file.is_file() and evaluations.KEY in record.decides:
            key = record.decides[evaluations.KEY]
            first = evaluations.find_finished(session, key, record.task, record.seed) or record
            file = evaluation_folder(settings, first.id) / PREDICTIONS_FILE
        if file.is_file():
            found[record.task, record.seed] = Kept.of(file, TaskResult.from_json(record.metrics))
    return found


def learned_nothing(record: DistillationRecord) -> str | None:
    """Say why a stored student is no success, or None if it is one, or is not there.

    A student as it starts was to learn nothing.
    """
    output = record.metrics.get("output")
    if record.status != "succeeded" or not record.total_steps or output is None:
        return None
    return not_learned(output, record.spec["training"]["learning_rate"], "training.learning_rate")

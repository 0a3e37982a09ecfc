"""What is stored of finished work and reports are made of; loads no torch."""

from __future__ import annotations

from collections.abc import Iterable

from api.jobs.files import evaluation_folder, task_run_folder
from kdnas.db.engine import Session
from kdnas.db.records import DistillationRecord, EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.evaluation.results import Metrics, TaskResult, main_score
from kdnas.evaluation.scoring.paired import PREDICTIONS_FILE, Kept
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.registry import find_task
from kdnas.records import TaskFacts, TaskRun
from kdnas.search.checks import not_learned
from kdnas.settings import Settings
from kdnas.specs.evaluation import OWN_SUITE


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


def run_results(facts: TaskFacts, runs: Iterable[TaskRun], suite: str) -> tuple[TaskResult, ...]:
    """Write the runs of distillations for a task that came to something as evaluations are.

    Args:
        facts: what preparing them has found out.
        runs: of one method.
        suite: that the task belongs to.
    """
    return tuple(_run_result(facts, run, suite) for run in runs if run.main is not None)


def _run_result(facts: TaskFacts, run: TaskRun, suite: str) -> TaskResult:
    used = {**facts.settings, **run.chosen}
    return TaskResult(
        task=facts.task,
        suite=suite,
        seed=run.seed,
        settings=FinetuneSettings(
            used["learning_rate"],
            used["epochs"] + used["finetune_epochs"],
            batch_size=used["batch_size"],
        ),
        metrics=run.metrics,
        main=evaluated_main(facts, run.metrics, suite),
        seconds=run.seconds,
        steps=run.steps,
        train_examples=facts.examples["train"],
        official_split=not any("not the official split" in text for text in facts.warnings),
        notes=facts.warnings,
    )


def evaluated_main(facts: TaskFacts, metrics: Metrics, suite: str) -> float:
    """Return the score by which evaluations compare models, from all metrics of a distillation.

    Of MRPC and QQP that is F1, where distillations for a task go by accuracy, as their paper does.

    Args:
        facts: what preparing the distillation has found out.
        metrics: of a student or its teacher, by evaluation set.
        suite: that the task belongs to; of the user's own tasks the metric is the same for both.
    """
    if suite == OWN_SUITE:
        return next(iter(metrics.values()))[facts.metric]
    return main_score(find_task(facts.task), metrics)


def run_prediction_files(
    job_id: str, method: str, results: Iterable[TaskResult], settings: Settings
) -> dict[tuple[str, int], Kept]:
    """Find the predictions of runs that lie on this machine; see :func:`prediction_files`.

    Args:
        job_id: of the distillations for a task.
        method: of the runs.
        results: of :func:`run_results`.
        settings: of this process.
    """
    places = {
        result.seed: task_run_folder(settings, job_id, method, result.seed) / PREDICTIONS_FILE
        for result in results
    }
    return {
        (result.task, result.seed): Kept.of(places[result.seed], result)
        for result in results
        if places[result.seed].is_file()
    }


def learned_nothing(record: DistillationRecord) -> str | None:
    """Say why a stored student is no success, or None if it is one, or is not there.

    A student as it starts was to learn nothing.
    """
    output = record.metrics.get("output")
    if record.status != "succeeded" or not record.total_steps or output is None:
        return None
    return not_learned(output, record.spec["training"]["learning_rate"], "training.learning_rate")

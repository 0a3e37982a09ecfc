"""The report of an evaluation, with the stored results of other models beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from api.evaluations.model_figures import EvaluatedModel, figures_of
from api.evaluations.paired_scores import compare, prediction_files
from api.evaluations.prepare import PreparedEvaluation
from api.evaluations.run import EvaluationOutcome
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.errors import NotFoundError
from kdnas.evaluation.benchmarking.timing import TimedModel
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.significance import Comparison
from kdnas.models.teacher import prepare_teacher
from kdnas.settings import Settings


def build_report(
    prepared: PreparedEvaluation,
    outcome: EvaluationOutcome,
    against: Iterable[str],
    database: Database,
    settings: Settings,
    on_wait: Callable[[str], None] | None = None,
) -> Report:
    """Put the results of an evaluation beside those of other models, with sizes and speeds.

    Other models count with what is stored of them for the same data, settings and seeds.

    Args:
        prepared: the evaluation.
        outcome: how it ended.
        against: models to compare with.
        database: where results are stored.
        settings: of this process.
        on_wait: is told if trainings on this machine have to be waited for.

    Raises:
        NotFoundError: nothing comparable is stored of one of the other models.
        TeacherError: one of them is not found.
    """
    own = [pair.record for pair in outcome.finished]
    names = [prepared.spec.model_name]
    models = [EvaluatedModel(TimedModel(prepared.model, prepared.spec.int8), tuple(own))]
    tests: dict[str, dict[str, Comparison]] = {}
    for ref in against:
        others = stored_results(prepared, ref, database)
        names.append(ref)
        models.append(EvaluatedModel(TimedModel(prepare_teacher(ref)), tuple(others)))
        tests[ref] = _tests(own, others, database, settings)
    found, lacking = figures_of(models, prepared.spec.latency, database, on_wait=on_wait)
    measured = [
        Measured(name, _results(one.records), figures)
        for name, one, figures in zip(names, models, found, strict=True)
    ]
    shape = prepared.model.shape
    report = make_report(
        prepared.spec.suite, measured, tests, layers=shape.layers, hidden=shape.hidden
    )
    return replace(report, notes=(*report.notes, *([lacking] if lacking else [])))


def stored_results(
    prepared: PreparedEvaluation, ref: str, database: Database
) -> list[EvaluationRecord]:
    """Return what is stored of another model for the same data, settings and seeds.

    Raises:
        NotFoundError: there is nothing.
        TeacherError: the model is not found.
    """
    model = prepare_teacher(ref)
    with database.read() as session:
        found = [
            evaluations.find_finished(session, planned.key(model, seed), planned.task.name, seed)
            for planned in prepared.tasks
            for seed in planned.seeds(prepared.spec.seeds)
        ]
    kept = [record for record in found if record is not None]
    if not kept:
        names = ", ".join(planned.task.name for planned in prepared.tasks)
        raise NotFoundError(
            f"model {ref!r} was not evaluated on {names} with these data, settings and seeds; run "
            f"the same command with {ref} in the place of the model first"
        )
    return kept


def _results(records: Iterable[EvaluationRecord]) -> tuple[TaskResult, ...]:
    return tuple(TaskResult.from_json(record.metrics) for record in records)


def _tests(
    own: Iterable[EvaluationRecord],
    others: Iterable[EvaluationRecord],
    database: Database,
    settings: Settings,
) -> dict[str, Comparison]:
    """Compare task by task, where the predictions of both models lie on this machine."""
    with database.read() as session:
        first, second = (prediction_files(session, one, settings) for one in (own, others))
    return compare(first, second)

"""The report of an evaluation of the command line, and what an evaluation adds to it.

That is size and speed of the models, known from before or measured and kept with the results, and
the scores in a student's own model card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from api.evaluations.prepare import PreparedEvaluation
from api.evaluations.stored_report import compared
from api.inputs.results import task_results
from kdnas.db.engine import Database, Session
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.errors import NotFoundError, RequestError
from kdnas.evaluation.benchmarking.timing import TimedModel, common_length, measure_models
from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.reports.card import is_student, write_scores
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.results import FIGURES
from kdnas.latency.measure import hardware_name
from kdnas.models.teacher import prepare_teacher
from kdnas.reach import ANYWHERE
from kdnas.settings import Settings
from kdnas.specs.evaluation import TimedSpec

WAIT_SECONDS = 30.0
"""How long trainings of others on this machine are waited for; then latency is left out."""
SHORT_WAIT_SECONDS = 5.0
"""The same where more work waits behind this; whoever evaluates the model next tries again."""
MOST_ROWS = 100
"""Of a model's results that are looked through for its figures."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """A model by its name in the report, with those of its results that are reported."""

    name: str
    model: TimedModel
    records: tuple[EvaluationRecord, ...]

    def known(self, conditions: tuple[str, int, int] | None) -> ModelFigures | None:
        """Return figures that stand with a result: timed under these conditions, if there are."""
        found = (ModelFigures.from_json(one.metrics.get(FIGURES)) for one in self.records)
        return next((f for f in found if f and conditions in (None, f.conditions)), None)


def build_report(
    prepared: PreparedEvaluation,
    records: Sequence[EvaluationRecord],
    against: Iterable[str],
    database: Database,
    settings: Settings,
    on_wait: Callable[[str], None] | None = None,
) -> Report:
    """Put the results of an evaluation beside those of other models, with sizes and speeds.

    Other models count with what is stored of them for the same data, settings and seeds.

    Args:
        prepared: the evaluation.
        records: of it, that have succeeded.
        against: models to compare with.
        database: where results are stored.
        settings: of this process.
        on_wait: is told if trainings on this machine have to be waited for.

    Raises:
        NotFoundError: nothing comparable is stored of one of the other models.
        TeacherError: one of them is not found.
    """
    spec, shape = prepared.spec, prepared.model.shape
    own = EvaluatedModel(spec.model_name, TimedModel(prepared.model, spec.int8), tuple(records))
    others = [
        EvaluatedModel(
            ref, TimedModel(prepare_teacher(ref)), tuple(stored_results(prepared, ref, database))
        )
        for ref in against
    ]
    models = [own, *others]
    tests = database.ask(
        lambda session: compared(session, settings, [(one.name, one.records) for one in models])
    )
    found, lacking = _figures_of(models, spec.latency, database, on_wait)
    measured = [
        Measured(one.name, task_results(one.records), figures)
        for one, figures in zip(models, found, strict=True)
    ]
    report = make_report(spec.suite, measured, tests, layers=shape.layers, hidden=shape.hidden)
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
    found = database.ask(
        lambda session: [
            evaluations.find_finished(session, planned.key(model, seed), planned.task.name, seed)
            for planned in prepared.tasks
            for seed in planned.seeds(prepared.spec.seeds)
        ]
    )
    kept = [record for record in found if record is not None]
    if not kept:
        names = ", ".join(planned.task.name for planned in prepared.tasks)
        raise NotFoundError(
            f"model {ref!r} was not evaluated on {names} with these data, settings and seeds; run "
            f"the same command with {ref} in the place of the model first"
        )
    return kept


def _figures_of(
    models: Sequence[EvaluatedModel],
    wanted: TimedSpec | None,
    database: Database,
    on_wait: Callable[[str], None] | None,
) -> tuple[list[ModelFigures], str | None]:
    """Find the figures of models that stand beside each other, or measure them all in turns.

    What was measured is kept with the models' results.

    Returns:
        The figures of each, and why latency is missing, if it should be there.

    Raises:
        TeacherError, StoreError: see ``measure_models``.
    """
    timed = [one.model for one in models]
    conditions = _conditions(timed, wanted)
    known = list(filter(None, (one.known(conditions) for one in models)))
    if len(known) == len(models):
        return known, None
    found, lacking = measure_models(timed, wanted, wait_seconds=WAIT_SECONDS, on_wait=on_wait)

    def write(session: Session) -> None:
        for one, figures in zip(models, found, strict=True):
            ids = [record.id for record in one.records]
            evaluations.note_in_results(session, ids, FIGURES, figures.to_json())

    database.transact(write)
    return found, lacking


def _conditions(
    models: Sequence[TimedModel], wanted: TimedSpec | None
) -> tuple[str, int, int] | None:
    if wanted is None:
        return None
    return hardware_name("cpu"), common_length(models, wanted), wanted.threads


def figures_before(prepared: PreparedEvaluation, database: Database) -> ModelFigures:
    """Find the figures of one model, or measure it, before it is evaluated.

    Raises:
        TeacherError, StoreError: see ``measure_models``.
    """
    model, wanted = TimedModel(prepared.model, prepared.spec.int8), prepared.spec.latency
    name = prepared.spec.model_name
    rows = database.ask(
        lambda session: evaluations.list_evaluations(
            session, model=name, statuses=["succeeded"], limit=MOST_ROWS
        )
    )
    fingerprint = prepared.model.fingerprint
    same = [r for r in rows if r.decides.get("model", {}).get("fingerprint") == fingerprint]
    known = EvaluatedModel(name, model, tuple(same)).known(_conditions([model], wanted))
    return known or measure_models([model], wanted, wait_seconds=SHORT_WAIT_SECONDS)[0][0]


def add_to_card(prepared: PreparedEvaluation, report: Report) -> str | None:
    """Put a report into the card of the model that it is about, if that is a student of kdnas.

    Args:
        prepared: the evaluation.
        report: of it.

    Returns:
        Why the card could not be written, if so: the scores themselves are safe elsewhere.
    """
    source = prepared.model.source
    folder: Path = source or prepared.model.folder
    reach = prepared.reach if source else ANYWHERE
    if not prepared.spec.card or prepared.spec.variant:
        return None
    try:
        if is_student(folder, reach):
            write_scores(folder, report, reach)
    except RequestError as error:
        return f"the scores could not be written into a model card: {error}"
    except OSError as error:
        return (
            f"the scores could not be written into the model card of {folder} ({error.strerror}); "
            "make the folder writable and run the same command again, or give --no-card"
        )
    return None

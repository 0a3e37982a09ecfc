"""Size and speed of evaluated models: known from before, or measured and kept with the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.evaluations.prepare import PreparedEvaluation
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.evaluation.benchmarking.timing import TimedModel, common_length, measure_models
from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.results import FIGURES
from kdnas.latency.measure import hardware_name
from kdnas.specs.evaluation import TimedSpec

WAIT_SECONDS = 30.0
"""How long trainings of others on this machine are waited for; then latency is left out."""
SHORT_WAIT_SECONDS = 5.0
"""The same where more work waits behind this; whoever evaluates the model next tries again."""
MOST_ROWS = 100
"""Of a model's results that are looked through for its figures."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """A model with those of its results that are reported."""

    model: TimedModel
    records: tuple[EvaluationRecord, ...]

    def known(self, conditions: tuple[str, int, int] | None) -> ModelFigures | None:
        """Return figures that stand with a result: timed under these conditions, if there are."""
        for record in self.records:
            found = ModelFigures.from_json(record.metrics.get(FIGURES))
            if found is not None and conditions in (None, found.conditions):
                return found
        return None


def figures_of(
    models: Sequence[EvaluatedModel],
    wanted: TimedSpec | None,
    database: Database,
    *,
    wait_seconds: float = WAIT_SECONDS,
    on_wait: Callable[[str], None] | None = None,
) -> tuple[list[ModelFigures], str | None]:
    """Find the figures of models that stand beside each other, or measure them all in turns.

    What was measured is kept with the models' results.

    Args:
        models: at least one.
        wanted: how latency is measured; None leaves it out.
        database: where the results are.
        wait_seconds: how long trainings of others are waited for.
        on_wait: is told if there is something to wait for.

    Returns:
        The figures of each, and why latency is missing, if it should be there.

    Raises:
        TeacherError, StoreError: see ``measure_models``.
    """
    timed = [one.model for one in models]
    conditions = _conditions(timed, wanted)
    known = [one.known(conditions) for one in models]
    if all(known):
        return [one for one in known if one is not None], None
    found, lacking = measure_models(timed, wanted, wait_seconds=wait_seconds, on_wait=on_wait)
    with database.write() as session:
        for one, figures in zip(models, found, strict=True):
            ids = [record.id for record in one.records]
            evaluations.note_in_results(session, ids, FIGURES, figures.to_json())
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
    model = TimedModel(prepared.model, prepared.spec.int8)
    with database.read() as session:
        rows = evaluations.list_evaluations(
            session, model=prepared.spec.model_name, statuses=["succeeded"], limit=MOST_ROWS
        )
    same = tuple(
        row
        for row in rows
        if row.decides.get("model", {}).get("fingerprint") == prepared.model.fingerprint
    )
    wanted = prepared.spec.latency
    conditions = _conditions([model], wanted)
    known = EvaluatedModel(model, same).known(conditions)
    if known is not None:
        return known
    return measure_models([model], wanted, wait_seconds=SHORT_WAIT_SECONDS)[0][0]


def keep_figures(figures: ModelFigures, evaluation_id: str, database: Database) -> None:
    """Let figures stand with a result."""
    with database.write() as session:
        evaluations.note_in_results(session, [evaluation_id], FIGURES, figures.to_json())

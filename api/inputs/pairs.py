"""What one request for an evaluation becomes: a row for each task and seed."""

from __future__ import annotations

from collections.abc import Sequence

from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.errors import RequestError
from kdnas.evaluation.settings import settings_for
from kdnas.evaluation.tasks.task import Task
from kdnas.specs.evaluation import EvaluationSpec

MOST_PAIRS = 500
"""Tasks times seeds of a request."""


def evaluation_pairs(spec: EvaluationSpec, tasks: Sequence[Task]) -> list[NewEvaluation]:
    """Return a row for each task and seed; where nothing is learned, one seed is enough.

    Raises:
        RequestError: settings do not go together, or it is too much at a time.
    """
    for task in tasks:
        settings_for(task, spec, "float32")  # what does not go together fails here
    if len(tasks) * len(spec.seeds) > MOST_PAIRS:
        raise RequestError(
            f"{len(tasks)} tasks with {len(spec.seeds)} seeds each are more than {MOST_PAIRS} "
            "evaluations; ask for fewer at a time"
        )
    return [
        NewEvaluation(
            task.suite,
            task.name,
            seed,
            spec.model_copy(update={"tasks": (task.name,), "seeds": (seed,)}).to_json(),
        )
        for task in tasks
        for seed in (spec.seeds if task.fine_tuned else (0,))
    ]

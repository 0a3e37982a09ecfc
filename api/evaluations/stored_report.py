"""The report of evaluations that are stored: of one model over a suite, beside others.

Torch stays out of it, since the service answers with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from api.inputs.results import prediction_files, task_results
from api.inputs.students import DISTILLATION, names_distillation
from kdnas.architecture import Architecture
from kdnas.db.engine import Session
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import distillations, evaluations
from kdnas.errors import NotFoundError
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.scoring.paired import Kept, compare
from kdnas.evaluation.scoring.significance import Comparison
from kdnas.settings import Settings

MOST_ROWS = 10_000

Way = tuple[str, str, int]
"""Data, settings and method of a fine-tuning: what is done alike may be compared."""
OTHERWISE = ("other data", "other settings", "another version of the fine-tuning")
"""What may be unlike in them."""
BEFORE_NOTED = 2
"""Version of the method of results in which it was not noted."""


@dataclass(frozen=True)
class _Model:
    """A model as a request names it, its results from the newest on, and the shape of a student."""

    name: str
    records: Sequence[EvaluationRecord]
    shape: Architecture | None


def stored_report(
    session: Session, settings: Settings, model: str, suite: str, against: Sequence[str]
) -> Report:
    """Report what is stored of a model over a suite.

    A task may have been evaluated in several ways, with other data or settings. The way of its
    newest result counts, with all seeds that were done in this way; of the other models counts
    what was done in the same way as well, and a note says so of one that has nothing.

    Args:
        session: of any transaction.
        settings: of this process; where predictions lie on this machine, models are also compared
            example by example.
        model: as rows name it, or ``distillation:`` and an id or a name.
        suite: name of the suite.
        against: other models, named likewise.

    Raises:
        NotFoundError: no such distillation, or nothing is stored of the model.
    """
    models = [_stored_model(session, text, suite) for text in (model, *against)]
    ways = _ways(models[0].records)
    kept = [(one.name, _kept(one.records, ways)) for one in models]
    if not kept[0][1]:
        raise NotFoundError(
            f"nothing is stored of model {model!r} over suite {suite!r}; evaluate it first"
        )
    there = [(name, records) for name, records in kept if records]
    shape = models[0].shape
    report = make_report(
        suite,
        [Measured(name, task_results(records)) for name, records in there],
        compared(session, settings, there),
        layers=None if shape is None else shape.layers,
        hidden=None if shape is None else shape.hidden,
    )
    lacking = [
        f"{one.name}: {_why_lacking(one.records, ways)}"
        for one, (_, records) in zip(models, kept, strict=True)
        if not records
    ]
    return replace(report, notes=(*report.notes, *lacking))


def stored_predictions(
    session: Session, settings: Settings, model: str, suite: str
) -> dict[tuple[str, int], Kept]:
    """Find what was said where a model's report over a suite has its scores from.

    Args:
        session: of any transaction.
        settings: of this process; what lies on another machine is left out.
        model: as rows name it, or ``distillation:`` and an id or a name.
        suite: name of the suite.

    Returns:
        Task and seed → predictions.

    Raises:
        NotFoundError: no such distillation, or nothing is stored of the model.
    """
    records = _counted(session, model, suite)
    return prediction_files(session, records, settings)


def _counted(session: Session, model: str, suite: str) -> list[EvaluationRecord]:
    """Take those results of a model that its report has."""
    found = _stored_model(session, model, suite).records
    records = _kept(found, _ways(found))
    if not records:
        raise NotFoundError(
            f"nothing is stored of model {model!r} over suite {suite!r}; evaluate it first"
        )
    return records


def compared(
    session: Session,
    settings: Settings,
    models: Sequence[tuple[str, Sequence[EvaluationRecord]]],
) -> dict[str, dict[str, Comparison]]:
    """Compare the first model with each other one, task by task, where predictions lie here.

    Args:
        session: of any transaction.
        settings: of this process.
        models: name and results of each.

    Returns:
        Name of another model → task → paired bootstrap.
    """
    files = [prediction_files(session, records, settings) for _, records in models]
    return {
        name: compare(files[0], theirs)
        for (name, _), theirs in zip(models[1:], files[1:], strict=True)
    }


def _stored_model(session: Session, text: str, suite: str) -> _Model:
    name, shape, wanted = text, None, {"model": text}
    if names_distillation(text):
        found = distillations.get_distillation(session, text.removeprefix(DISTILLATION))
        name, shape, wanted = found.name, found.architecture, {"distillation_id": found.id}
    records = evaluations.list_evaluations(
        session, suite=suite, statuses=["succeeded"], limit=MOST_ROWS, **wanted
    )
    return _Model(name, records, shape)


def _kept(records: Sequence[EvaluationRecord], ways: Mapping[str, Way]) -> list[EvaluationRecord]:
    """Take the newest result of each task and seed in the way that counts."""
    alike = [record for record in reversed(records) if _way(record) == ways.get(record.task)]
    # A model may have changed under its name: its newest version counts, not a mixture.
    versions = {record.task: record.decides["model"].get("fingerprint") for record in alike}
    kept = {
        (record.task, record.seed): record
        for record in alike
        if record.decides["model"].get("fingerprint") == versions[record.task]
    }
    return [kept[key] for key in sorted(kept)]


def _why_lacking(records: Sequence[EvaluationRecord], ways: Mapping[str, Way]) -> str:
    """Say what was done otherwise where nothing of a model counts."""
    theirs = _ways([record for record in records if record.task in ways])
    if not theirs:
        return f"nothing is stored of {', '.join(ways)}"
    unlike = (
        what
        for place, what in enumerate(OTHERWISE)
        if any(way[place] != ways[task][place] for task, way in theirs.items())
    )
    return f"what is stored was done with {' and '.join(unlike)}; evaluate it anew"


def _ways(records: Sequence[EvaluationRecord]) -> dict[str, Way]:
    """Take the way of each task's newest result."""
    return {record.task: _way(record) for record in reversed(records)}


def _way(record: EvaluationRecord) -> Way:
    decides = record.decides
    settings = json.dumps(decides["settings"], sort_keys=True)
    return decides["data"], settings, decides.get("method", BEFORE_NOTED)

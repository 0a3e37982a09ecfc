"""The report of evaluations that are stored: of one model over a suite, beside others.

Torch stays out of it, since the service answers with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.evaluations.paired_scores import compare, prediction_files
from kdnas.db.engine import Session
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import distillations, evaluations
from kdnas.errors import NotFoundError
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.results import TaskResult
from kdnas.settings import Settings

DISTILLATION = "distillation:"
"""Before the id or name of a distillation whose student is meant."""

MOST_ROWS = 10_000

Way = tuple[str, str]
"""Data and settings of a fine-tuning: what is done alike may be compared."""


@dataclass(frozen=True)
class _Model:
    """A model as a request names it; ``layers`` and ``hidden`` are those of a student."""

    name: str
    ref: str | None
    distillation_id: str | None = None
    layers: int | None = None
    hidden: int | None = None


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
    first = _found_model(session, model)
    ways: dict[str, Way] = {}
    own = _finished(session, first, suite)
    for record in own:
        ways.setdefault(record.task, _way(record))
    kept = _kept(own, ways)
    if not kept:
        raise NotFoundError(
            f"nothing is stored of model {model!r} over suite {suite!r}; evaluate it first"
        )
    measured = [_measured(first, kept)]
    files = prediction_files(session, kept, settings)
    tests, lacking = {}, []
    for other in (_found_model(session, text) for text in against):
        found = _kept(_finished(session, other, suite), ways)
        if found:
            measured.append(_measured(other, found))
            tests[other.name] = compare(files, prediction_files(session, found, settings))
        else:
            lacking.append(f"{other.name}: nothing is stored with these data and settings")
    report = make_report(suite, measured, tests, layers=first.layers, hidden=first.hidden)
    return replace(report, notes=(*report.notes, *lacking))


def _found_model(session: Session, text: str) -> _Model:
    if not text.startswith(DISTILLATION):
        return _Model(text, text)
    found = distillations.get_distillation(session, text.removeprefix(DISTILLATION))
    shape = found.architecture
    return _Model(found.name, None, found.id, shape.layers, shape.hidden)


def _finished(session: Session, model: _Model, suite: str) -> list[EvaluationRecord]:
    """All that has succeeded, the newest first."""
    return evaluations.list_evaluations(
        session,
        model=model.ref,
        distillation_id=model.distillation_id,
        suite=suite,
        statuses=["succeeded"],
        limit=MOST_ROWS,
    )


def _kept(records: Iterable[EvaluationRecord], ways: Mapping[str, Way]) -> list[EvaluationRecord]:
    """Take the newest result of each task and seed in the way that counts."""
    versions: dict[str, str] = {}
    kept: dict[tuple[str, int], EvaluationRecord] = {}
    for record in records:
        if _way(record) != ways.get(record.task):
            continue
        # A model may have changed under its name: its newest version counts, not a mixture.
        fingerprint = str(record.decides["model"].get("fingerprint"))
        if versions.setdefault(record.task, fingerprint) == fingerprint:
            kept.setdefault((record.task, record.seed), record)
    return [kept[key] for key in sorted(kept)]


def _measured(model: _Model, records: Iterable[EvaluationRecord]) -> Measured:
    return Measured(model.name, tuple(TaskResult.from_json(r.metrics) for r in records))


def _way(record: EvaluationRecord) -> Way:
    return record.decides["data"], json.dumps(record.decides["settings"], sort_keys=True)

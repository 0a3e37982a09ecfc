"""The report of an evaluation: scores of one or several models over a suite, beside others'.

Scores are kept as fractions, as they are measured; :mod:`kdnas.evaluation.reports.formats` prints
per cent, as the papers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from statistics import fmean, stdev
from typing import Any, Literal

from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.reports.published import PublishedResult, Score, published
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.averages import Average, language_average, suite_averages
from kdnas.evaluation.scoring.significance import Comparison
from kdnas.evaluation.tasks.registry import TASKS, find_task
from kdnas.evaluation.tasks.task import METRIC_NAMES
from kdnas.specs.evaluation import OWN_SUITE

PUBLISHED_NAMES: Mapping[str, tuple[str, ...]] = {
    "MNLI": ("MNLI", "MNLI-m"),
    "SQuAD 1.1": ("SQuAD",),
    "TyDiQA-GoldP": ("TyDi",),
    "CoNLL-2003": ("CoNLL",),
    "MLQA": ("MLQA F1",),
}
"""Our name of a column → what the papers call it, where that is not the same."""
SHOWN_PUBLISHED = 12
"""Published rows beside ours; ``published`` has them all."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A score over seeds.

    Attributes:
        mean: over the seeds.
        deviation: sample deviation; None of a single seed, or where a paper has none.
        seeds: how many there are; None where a paper does not say.
    """

    mean: float
    deviation: float | None
    seeds: int | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Cell:
        """Sum up one value a seed."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True, slots=True)
class Row:
    """A model's scores.

    Attributes:
        model: its name.
        origin: ``measured`` here, or ``published`` in a paper.
        cells: column → score; what was not measured is left out.
        method: how a published model was made, and from which teacher.
        about: where a published row is from, and on which split.
        figures: size and speed of a measured model, where they are known.
    """

    model: str
    origin: Literal["measured", "published"]
    cells: Mapping[str, Cell]
    method: str = ""
    about: str = ""
    figures: ModelFigures | None = None


@dataclass(frozen=True, slots=True)
class Detail:
    """One metric of a model on an evaluation set of a task."""

    model: str
    task: str
    part: str
    metric: str
    cell: Cell
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Against:
    """A model beside another one, such as a student beside its teacher.

    Attributes:
        model: the first.
        other: the second.
        retained: column → share of the second one's score that the first one has.
        tests: task → paired bootstrap over the examples, where both models' predictions are kept.
        speed_up: how many times sooner the first one answers, where both were timed alike.
    """

    model: str
    other: str
    retained: Mapping[str, float]
    tests: Mapping[str, Comparison] = field(default_factory=dict)
    speed_up: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Scores over a suite.

    Attributes:
        suite: its name.
        columns: tasks, languages and averages, in order.
        rows: measured models first, then published ones.
        details: every metric of every evaluation set.
        against: the first model beside each of the others.
        notes: what a reader should know, a sentence each.
    """

    suite: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    details: tuple[Detail, ...]
    against: tuple[Against, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A model and its results, a task and a seed each.

    Attributes:
        model: its name.
        results: of it.
        figures: its size and speed; None takes those that stand with its results.
    """

    model: str
    results: tuple[TaskResult, ...]
    figures: ModelFigures | None = None

    @property
    def known_figures(self) -> ModelFigures | None:
        """Size and speed of the model, timed if any of its results has that."""
        found = [self.figures, *(r.figures for r in reversed(self.results))]
        known = [f for f in found if f is not None]
        return next((f for f in known if f.latency_ms is not None), next(iter(known), None))


def make_report(
    suite: str,
    measured: Sequence[Measured],
    tests: Mapping[str, Mapping[str, Comparison]] | None = None,
    *,
    layers: int | None = None,
    hidden: int | None = None,
    max_published: int = SHOWN_PUBLISHED,
) -> Report:
    """Put results together.

    Args:
        suite: name of the suite.
        measured: the model, then those that it is compared with.
        tests: name of a compared model → task → paired bootstrap.
        layers: of the model; published models of about its size come first.
        hidden: its width.
        max_published: how many published rows stand beside, those with most columns first.
    """
    ambiguous = _ambiguous(suite, measured)
    rows = [
        Row(
            group.model,
            "measured",
            _cells(suite, group.results, ambiguous),
            figures=group.known_figures,
        )
        for group in measured
    ]
    columns = tuple(dict.fromkeys(column for row in rows for column in row.cells))
    # A task of the user's own is nobody else's, whatever it is called.
    others = [] if suite == OWN_SUITE else _published_rows(columns, layers, hidden)
    return Report(
        suite=suite,
        columns=columns,
        rows=(*rows, *others[:max_published]),
        details=tuple(detail for group in measured for detail in _details(group)),
        against=tuple(
            Against(
                rows[0].model,
                row.model,
                _retained(rows[0], row),
                (tests or {}).get(row.model, {}),
                None if rows[0].figures is None else rows[0].figures.speed_up_over(row.figures),
            )
            for row in rows[1:]
        ),
        notes=_notes(measured),
    )


def _ambiguous(suite: str, measured: Sequence[Measured]) -> frozenset[str]:
    """Labels under which averages over different tasks or languages would stand."""
    over: dict[str, set[tuple[str, ...]]] = {}
    for group in measured:
        averages = suite_averages(suite, dict.fromkeys(_common(group.results), 0.0))
        for average in (*averages, *filter(None, map(_over_languages, group.results))):
            over.setdefault(average.label, set()).add(average.over)
    return frozenset(label for label, found in over.items() if len(found) > 1)


def _common(results: Sequence[TaskResult]) -> list[str]:
    """Tasks that every seed has."""
    seeds: dict[int, set[str]] = {}
    for result in results:
        seeds.setdefault(result.seed, set()).add(result.task)
    names = dict.fromkeys(result.task for result in results)
    return [task for task in names if all(task in found for found in seeds.values())]


def _cells(suite: str, results: Sequence[TaskResult], ambiguous: frozenset[str]) -> dict[str, Cell]:
    """Column → score: tasks with their languages, then averages of the suite.

    Averages are taken seed by seed, over the tasks that every seed has.
    """
    values: dict[str, list[float]] = {}
    seeds: dict[int, dict[str, float]] = {}
    for result in results:
        seeds.setdefault(result.seed, {})[result.task] = result.main
        for column, score in _scores(result, ambiguous).items():
            values.setdefault(column, []).append(score)
    common = _common(results)
    for scores in seeds.values():
        for average in suite_averages(suite, {task: scores[task] for task in common}):
            values.setdefault(_label(average, ambiguous), []).append(average.value)
    return {column: Cell.of(scores) for column, scores in values.items()}


def _label(average: Average, ambiguous: frozenset[str]) -> str:
    return average.long_label if average.label in ambiguous else average.label


def _over_languages(result: TaskResult) -> Average | None:
    if result.suite == OWN_SUITE:
        return None
    return language_average(find_task(result.task), result.metrics)


def _scores(result: TaskResult, ambiguous: frozenset[str]) -> dict[str, float]:
    """Column → score of one result: its languages, if the task has such, then the task itself.

    A task without all of the languages that papers average is called otherwise than theirs.
    """
    if result.suite == OWN_SUITE:
        return {result.task: result.main}
    task = find_task(result.task)
    average = _over_languages(result)
    if average is None:
        return {task.name: result.main}
    scores = {f"{task.name} {n}": v[task.main_metric] for n, v in result.metrics.items()}
    return {**scores, _label(average, ambiguous): result.main}


def _details(group: Measured) -> list[Detail]:
    values: dict[tuple[str, str, str], list[float]] = {}
    for result in group.results:
        for part, metrics in result.metrics.items():
            for metric, value in metrics.items():
                values.setdefault((result.task, part, metric), []).append(value)
    return [Detail(group.model, *key, Cell.of(v), tuple(v)) for key, v in values.items()]


def _retained(model: Row, other: Row) -> dict[str, float]:
    return {
        column: cell.mean / other.cells[column].mean
        for column, cell in model.cells.items()
        if column in other.cells and other.cells[column].mean > 0
    }


def _published_rows(
    columns: Sequence[str], layers: int | None = None, hidden: int | None = None
) -> list[Row]:
    """Published rows with any of the columns: those with most of them, and of like size, first.

    What was scored by the GLUE server is left out, since our scores are of other examples; so is a
    score by another metric than ours, which of MRPC, QQP and STS-B some papers have, and an average
    with one in it.
    """
    rows = []
    for result in published():
        cells = {}
        for column in columns:
            names = PUBLISHED_NAMES.get(column, (column, f"{column} F1"))
            known = (score for score in map(result.score, names) if score is not None)
            score = next((one for one in known if _is_like_ours(result, one, column)), None)
            if score is not None:
                deviation = None if score.deviation is None else _fraction(score.deviation)
                cells[column] = Cell(_fraction(score.value), deviation, result.runs)
        if cells and result.split != "test":
            row = Row(result.model, "published", cells, _method(result), _origin(result))
            rows.append((-len(cells), _size_difference(result, layers, hidden), row))
    return [row for *_, row in sorted(rows, key=lambda item: item[:2])]


def _is_like_ours(result: PublishedResult, score: Score, column: str) -> bool:
    """Whether a published score is by the metric of our column, as far as both are known."""
    averaged = result.averages.get(column)
    if averaged is not None:
        parts = ((name, result.score(name)) for name in averaged)
        return all(part is None or _is_like_ours(result, part, name) for name, part in parts)
    task = TASKS.get(column.lower())
    return task is None or score.metric in (None, METRIC_NAMES[task.main_metric])


def _fraction(per_cent: float) -> float:
    """A printed figure as the fraction that it is: 17.8 becomes 0.178."""
    return round(per_cent / 100, 6)


def _size_difference(result: PublishedResult, layers: int | None, hidden: int | None) -> float:
    """How many times larger or smaller the layers of a model are, as a logarithm."""
    if not (layers and hidden and result.layers and result.hidden):
        return inf
    return abs(log(result.layers * result.hidden**2 / (layers * hidden**2)))


def _method(result: PublishedResult) -> str:
    method = "" if result.method in (result.model, "no distillation") else result.method
    teacher = f"from {result.teacher}" if result.teacher else ""
    return ", ".join(filter(None, (method, teacher)))


def _origin(result: PublishedResult) -> str:
    split = f", {result.split} set" if result.split else ""
    return f"{result.authors} {result.year}, Table {result.table}{split}"


def _notes(measured: Sequence[Measured]) -> tuple[str, ...]:
    """Each note once, after the tasks that it is about."""
    tasks: dict[str, dict[str, None]] = {}
    for result in (result for group in measured for result in group.results):
        notes = list(result.notes)
        if not result.official_split and not any("not the official split" in n for n in notes):
            notes.insert(0, "not the official split")
        for note in notes:
            tasks.setdefault(note, {})[result.task] = None
    return tuple(f"{', '.join(names)}: {note}" for note, names in tasks.items())


def report_json(report: Report) -> dict[str, Any]:
    """Return a report as plain JSON; scores are fractions."""
    return {
        "suite": report.suite,
        "columns": list(report.columns),
        "rows": [
            {
                "model": row.model,
                "origin": row.origin,
                "method": row.method,
                "about": row.about,
                "scores": {column: _cell_json(cell) for column, cell in row.cells.items()},
                "figures": row.figures and row.figures.to_json(),
            }
            for row in report.rows
        ],
        "details": [
            {
                "model": d.model,
                "task": d.task,
                "set": d.part,
                "metric": d.metric,
                **_cell_json(d.cell),
                "values": list(d.values),
            }
            for d in report.details
        ],
        "against": [
            {
                "model": a.model,
                "other": a.other,
                "retained": dict(a.retained),
                "speed_up": a.speed_up,
                "bootstrap": {
                    task: {
                        "difference": test.difference,
                        "low": test.low,
                        "high": test.high,
                        "p_value": test.p_value,
                        "examples": test.examples,
                        "metric": test.metric,
                    }
                    for task, test in a.tests.items()
                },
            }
            for a in report.against
        ],
        "notes": list(report.notes),
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {"mean": cell.mean, "deviation": cell.deviation, "seeds": cell.seeds}

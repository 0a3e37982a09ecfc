"""The report of a pipeline as Markdown, CSV and LaTeX; scores in per cent, in CSV as fractions."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import isfinite

from api.pipelines.results import Beside, Estimate, ModelLine, PipelineReport, StageTime
from api.pipelines.words import ROLE_NAMES, difference_text
from kdnas.evaluation.reports.formats import (
    ABSENT,
    bootstrap_line,
    cell_text,
    latex_table,
    markdown_table,
)
from kdnas.evaluation.reports.report import Cell

SCORES_LEGEND = "Per cent, mean ± deviation over seeds; published rows are the papers' own."
FIGURES = (
    "reward",
    "search_loss",
    "held_out_loss",
    "params_millions",
    "latency_ms",
    "latency_ratio",
)

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""


def as_markdown(report: PipelineReport) -> str:
    """Write a report for a document: the answer first, how it was found last."""
    parts = [f"# Pipeline {report.name}", f"**{report.headline}**", _listed(report.findings)]
    if report.models:
        parts += ["## Models", markdown_table(*model_table(report)), _legend(report)]
    if len(report.columns) > 1 or report.published:
        parts += [
            "## Scores",
            SCORES_LEGEND,
            markdown_table(*score_table(report)),
        ]
    if report.beside:
        parts += ["## How sure the differences are", markdown_table(*difference_table(report))]
    if len(report.columns) > 1 and (lines := test_lines(report)):
        parts += ["### Task by task", _listed(lines)]
    parts += ["## How it was made", _listed([f"{k}: {v}" for k, v in report.setup.items()])]
    if report.stages:
        parts += ["## How long it took", markdown_table(*time_table(report))]
    if report.failures:
        failed = [f"{one.part}: {one.error}" for one in report.failures]
        parts += ["## What failed", _listed(failed), report.remedy]
    if report.notes:
        parts += ["## Notes", _listed(report.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _legend(report: PipelineReport) -> str:
    return (
        "Loss: relative, on held-out text, 0 is the teacher: after the short training of the "
        "search, and after the full distillation (layers are learned from differently in students "
        "of other depths, so it is a guide, not a ranking). Latency: by the search's table, and as "
        "a share of the teacher's. An undistilled student is one as it starts, fine-tuned and "
        "scored alike: its loss is that of the start, and what the distilled one is above it was "
        "gained by distilling."
        + (f" Score: {report.score_name}, per cent." if report.score_name else "")
    )


def model_table(report: PipelineReport) -> Table:
    """Return a row for each model."""
    header = ["model", "role", "reward", "loss in search", "loss after distillation"]
    header += ["parameters", "latency", "× teacher", report.score_name or "score", "retained"]
    header += ["gained by distilling"]
    return header, [_model_row(model, report) for model in report.models]


def _model_row(model: ModelLine, report: PipelineReport) -> list[str]:
    taken = any(pick.name == model.name for pick in report.picks)
    share = model.retained
    interval = ""
    if share is not None and share.low is not None and share.high is not None:
        interval = f" ({100 * share.low:.1f} to {100 * share.high:.1f})"
    return [
        f"**{model.name}**" if taken else model.name,
        ", ".join([ROLE_NAMES[model.role], *(one for one in model.reasons if one != model.name)]),
        _number(model.reward, ".3f"),
        _number(model.search_loss, ".3f"),
        _number(model.held_out_loss, ".3f"),
        _number(model.params_millions, ".1f", " M"),
        _number(model.latency_ms, ".3g", " ms"),
        _number(model.latency_ratio, ".2f"),
        cell_text(model.score),
        ABSENT if share is None else f"{100 * share.value:.1f} %{interval}",
        ABSENT if model.gained is None else difference_text(model.gained),
    ]


def _number(value: float | None, form: str, unit: str = "") -> str:
    return ABSENT if value is None or not isfinite(value) else f"{value:{form}}{unit}"


def score_table(report: PipelineReport) -> Table:
    """Return a row for each model with scores, then those of papers."""
    header = ["model", *report.columns]
    rows = [
        [model.name, *_cells(model.scores, report.columns)]
        for model in report.models
        if model.scores
    ]
    rows += [
        [
            f"{', '.join(filter(None, (row.model, row.method)))} (published: {row.about})",
            *_cells(row.cells, report.columns),
        ]
        for row in report.published
    ]
    return header, rows


def _cells(cells: Mapping[str, Cell], columns: Sequence[str]) -> list[str]:
    return [cell_text(cells.get(column)) for column in columns]


def difference_table(report: PipelineReport) -> Table:
    """Return a row for each model beside a student to take: points, with 95 % interval."""
    roles = {model.name: ROLE_NAMES[model.role] for model in report.models}
    header = ["student", "beside", "role", "points (95 % interval)", "drawn over", "the student is"]
    return header, [_difference_row(one, roles[one.other]) for one in report.beside]


def _difference_row(one: Beside, role: str) -> list[str]:
    over = one.difference.over or ABSENT
    text = difference_text(one.difference)
    return [one.model, one.other, role, text, over, one.verdict]


def test_lines(report: PipelineReport) -> list[str]:
    """Say in a sentence a task how sure a difference is by the examples alone."""
    return [
        bootstrap_line(task, one.model, one.other, test)
        for one in report.beside
        for task, test in one.tests.items()
    ]


def time_table(report: PipelineReport) -> Table:
    """Return a row for each stage: by the clock, and its parts added up, each with its pauses."""
    header = ["stage", "by the clock", "parts, added up"]
    return header, [[one.stage, *_times(one)] for one in report.stages]


def _times(stage: StageTime) -> list[str]:
    clock = "under way" if stage.seconds is None else duration(stage.seconds)
    return [clock, duration(stage.work_seconds)]


def duration(seconds: float) -> str:
    """Write a span of time in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def as_csv(report: PipelineReport) -> str:
    """Write a report for other programs: a line a model and column, as fractions."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    about = ["pipeline", "model", "role", "taken", *FIGURES]
    share = [f"{word}{end}" for word in ("retained", "gained") for end in ("", "_low", "_high")]
    writer.writerow([*about, *share, "column", "mean", "deviation", "seeds"])
    taken = {pick.name for pick in report.picks}
    for model in report.models:
        own = [model.name, model.role, int(model.name in taken)]
        own += [_plain(getattr(model, figure)) for figure in FIGURES]
        own += [*_of_estimate(model.retained), *_of_estimate(model.gained)]
        for column, cell in model.scores.items() or [("", None)]:
            writer.writerow([report.name, *own, column, *_of_cell(cell)])
    for row in report.published:
        empty = [""] * (len(FIGURES) + len(share))
        for column, cell in row.cells.items():
            values = [column, *_of_cell(cell)]
            writer.writerow([report.name, row.model, "published", 0, *empty, *values])
    return stream.getvalue()


def _of_estimate(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return [""] * 3
    return [_plain(value) for value in (estimate.value, estimate.low, estimate.high)]


def _of_cell(cell: Cell | None) -> list[str]:
    if cell is None:
        return [""] * 3
    return [_plain(value) for value in (cell.mean, cell.deviation, cell.seeds)]


def _plain(value: float | None) -> str:
    return "" if value is None else repr(value)


def as_latex(report: PipelineReport) -> str:
    """Write the table of the models for a paper; needs ``booktabs``."""
    header, rows = model_table(report)
    plain = [[cell.replace("**", "") for cell in row] for row in rows]
    return latex_table(header, plain, len(rows))

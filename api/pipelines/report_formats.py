"""The report of a pipeline as Markdown, CSV and LaTeX; scores in per cent, in CSV as fractions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from math import isfinite

from api.pipelines.results import ROLE_NAMES, Estimate, ModelLine, PipelineReport, StageTime
from kdnas.evaluation.reports import formats
from kdnas.evaluation.reports.formats import ABSENT, bootstrap_line, latex_table, markdown_table
from kdnas.evaluation.reports.report import Report, Row
from kdnas.spreadsheet import CsvWriter

SCORES_LEGEND = "Per cent, mean ± deviation over seeds; published rows are the papers' own."
FIGURES = (
    "reward",
    "search_loss",
    "held_out_loss",
    "params_millions",
    "latency_ms",
    "latency_ratio",
)

SECOND_STEP_LEGEND = (
    "Per cent, mean ± deviation over seeds: the student fine-tuned on the task as all models are, "
    "and distilled once more for it, each with its share of the teacher's score. Its teacher is "
    "the one that taught it the task, which has not seen the examples that epochs are chosen by."
)

ENDS = ("", "_low", "_high")
ESTIMATE, CELL = ("value", "low", "high"), ("mean", "deviation", "seeds")

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""


def as_markdown(report: PipelineReport) -> str:
    """Write a report for a document: the answer first, how it was found last."""
    several = len(report.columns) > 1
    sections: list[tuple[object, list[str]]] = [
        (True, [f"# Pipeline {report.name}", f"**{report.headline}**", _listed(report.findings)]),
        (report.models, ["## Models", markdown_table(*model_table(report)), _legend(report)]),
        (
            several or report.published,
            ["## Scores", SCORES_LEGEND, markdown_table(*score_table(report))],
        ),
        (
            report.beside,
            ["## How sure the differences are", markdown_table(*difference_table(report))],
        ),
        (
            report.second_steps,
            [
                "## What the second step brings",
                markdown_table(*second_step_table(report)),
                SECOND_STEP_LEGEND,
            ],
        ),
        (
            several and any(one.tests for one in report.beside),
            ["### Task by task", _listed(test_lines(report))],
        ),
        (True, ["## How it was made", _listed([f"{k}: {v}" for k, v in report.setup.items()])]),
        (report.stages, ["## How long it took", markdown_table(*time_table(report))]),
        (
            report.failures,
            [
                "## What failed",
                _listed([f"{one.part}: {one.error}" for one in report.failures]),
                report.remedy,
            ],
        ),
        (report.notes, ["## Notes", _listed(report.notes)]),
    ]
    parts = [part for holds, parts in sections if holds for part in parts if part]
    return "\n\n".join(parts) + "\n"


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
    return [
        f"**{model.name}**" if taken else model.name,
        ", ".join([ROLE_NAMES[model.role], *(one for one in model.reasons if one != model.name)]),
        _number(model.reward, ".3f"),
        _number(model.search_loss, ".3f"),
        _number(model.held_out_loss, ".3f"),
        _number(model.params_millions, ".1f", " M"),
        _number(model.latency_ms, ".3g", " ms"),
        _number(model.latency_ratio, ".2f"),
        formats.cell_text(model.score),
        _share(model.retained),
        ABSENT if model.gained is None else model.gained.as_difference,
    ]


def _number(value: float | None, form: str, unit: str = "") -> str:
    return ABSENT if value is None or not isfinite(value) else f"{value:{form}}{unit}"


def score_table(report: PipelineReport) -> Table:
    """Return a row for each model with scores, then those of papers."""
    rows = [Row(model.name, "measured", model.scores) for model in report.models if model.scores]
    scores = Report("", report.columns, (*rows, *report.published), (), (), ())
    return formats.score_table(scores)


def difference_table(report: PipelineReport) -> Table:
    """Return a row for each model beside a student to take: points, with 95 % interval."""
    roles = {model.name: ROLE_NAMES[model.role] for model in report.models}
    header = ["student", "beside", "role", "points (95 % interval)", "drawn over", "the student is"]
    return header, [
        [
            one.model,
            one.other,
            roles[one.other],
            one.difference.as_difference,
            one.difference.over or ABSENT,
            one.verdict,
        ]
        for one in report.beside
    ]


def second_step_table(report: PipelineReport) -> Table:
    """Return a row for each student and task: before and after the second step."""
    header = [
        "student",
        "task",
        "fine-tuned",
        "retained before",
        "distilled for it",
        "retained after",
    ]
    header += ["points (95 % interval)", "drawn over", "the second step is", "its teacher"]
    return header, [
        [
            one.name,
            one.task,
            formats.cell_text(one.before),
            _share(one.retained_before),
            formats.cell_text(one.after) if one.after else one.status or ABSENT,
            _share(one.retained_after),
            ABSENT if one.gained is None else one.gained.as_difference,
            (one.gained and one.gained.over) or ABSENT,
            one.verdict if one.gained else ABSENT,
            ABSENT if one.taught_by is None else f"{100 * one.taught_by:.1f}",
        ]
        for one in report.second_steps
    ]


def _share(share: Estimate | None) -> str:
    return ABSENT if share is None else share.as_share()


def test_lines(report: PipelineReport) -> list[str]:
    """Say in a sentence a task how sure a difference is by the examples alone."""
    return [
        bootstrap_line(task, one.model, one.other, test)
        for one in report.beside
        for task, test in one.tests.items()
    ]


def _by_the_clock(stage: StageTime) -> str:
    if stage.seconds is not None:
        return duration(stage.seconds)
    return "under way" if stage.finished_at is None else ABSENT  # all of it was cancelled before


def time_table(report: PipelineReport) -> Table:
    """Return a row for each stage: by the clock, and its parts added up, each with its pauses."""
    header = ["stage", "by the clock", "parts, added up"]
    return header, [
        [
            one.stage,
            _by_the_clock(one),
            duration(one.work_seconds),
        ]
        for one in report.stages
    ]


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
    writer = CsvWriter(stream)
    about = ["pipeline", "model", "role", "taken", *FIGURES]
    share = [f"{word}{end}" for word in ("retained", "gained") for end in ENDS]
    step = [f"{word}{end}" for word in ("retained_of_column", "above_fine_tuned") for end in ENDS]
    writer.writerow([*about, *share, "column", "mean", "deviation", "seeds", *step])
    steps = _by_column(report)
    taken = {pick.name for pick in report.picks}
    for model in report.models:
        own = [report.name, model.name, model.role, int(model.name in taken)]
        own += _plain(model, FIGURES)
        own += [*_plain(model.retained, ESTIMATE), *_plain(model.gained, ESTIMATE)]
        for column, cell in model.scores.items() or [("", None)]:
            of_step = steps.get((model.name, column), (None, None))
            ends = [text for one in of_step for text in _plain(one, ESTIMATE)]
            writer.writerow([*own, column, *_plain(cell, CELL), *ends])
    empty = [""] * (len(FIGURES) + len(share))
    for row in report.published:
        for column, cell in row.cells.items():
            own = [report.name, row.model, "published", 0, *empty]
            writer.writerow([*own, column, *_plain(cell, CELL), *[""] * len(step)])
    return stream.getvalue()


def _by_column(
    report: PipelineReport,
) -> dict[tuple[str, str], tuple[Estimate | None, Estimate | None]]:
    """Model and column → share of the teacher's, and points above the fine-tuned student."""
    found: dict[tuple[str, str], tuple[Estimate | None, Estimate | None]] = {}
    for one in report.second_steps:
        found[one.model, one.task] = (one.retained_before, None)
        found[one.name, one.task] = (one.retained_after, one.gained)
    return found


def _plain(of: object, names: Sequence[str]) -> list[str]:
    """Attributes as Python writes them; nothing for what is None, or has none of them."""
    values = [getattr(of, name, None) for name in names]
    return ["" if value is None else repr(value) for value in values]


def as_latex(report: PipelineReport) -> str:
    """Write the tables of the models and of the second step for a paper; needs ``booktabs``."""
    tables = [model_table(report)]
    tables += [second_step_table(report)] if report.second_steps else []
    texts = []
    for header, rows in tables:
        plain = [[cell.replace("**", "") for cell in row] for row in rows]
        texts.append(latex_table(header, plain, len(rows)))
    return "\n".join(texts)

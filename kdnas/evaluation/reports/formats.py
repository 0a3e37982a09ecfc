"""A report as Markdown, CSV and LaTeX; scores in per cent, as the papers print them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import count

from kdnas.evaluation.model_figures import RUNTIME_NAMES
from kdnas.evaluation.reports.report import Against, Cell, Report, Row
from kdnas.evaluation.scoring.significance import Comparison
from kdnas.evaluation.tasks.task import ERRORS, METRIC_NAMES
from kdnas.spreadsheet import CsvWriter

ABSENT = "–"


def cell_text(cell: Cell | None, plus_minus: str = "±") -> str:
    """Write a score in per cent: ``91.4±0.2``."""
    if cell is None:
        return ABSENT
    spread = "" if cell.deviation is None else f"{plus_minus}{100 * cell.deviation:.1f}"
    return f"{100 * cell.mean:.1f}{spread}"


def score_table(report: Report, *, numbered: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of scores.

    Args:
        report: the report.
        numbered: give published rows a number and the name of the model alone, for
            :func:`source_lines` to go on; otherwise they say where they are from.
    """
    names = _numbered(report) if numbered else [_full_name(row) for row in report.rows]
    header = ["model", *report.columns]
    rows = [
        [name, *(cell_text(row.cells.get(column)) for column in report.columns)]
        for name, row in zip(names, report.rows, strict=True)
    ]
    rows += [
        [f"share of {a.other}", *(_share(a, column) for column in report.columns)]
        for a in report.against
    ]
    return header, rows


def source_lines(report: Report) -> list[str]:
    """Say of each numbered row how the model was made, and where it was published."""
    return [
        f"{name}: {_source(row)}"
        for name, row in zip(_numbered(report), report.rows, strict=True)
        if row.origin == "published"
    ]


def _numbered(report: Report) -> list[str]:
    number = count(1)
    return [
        row.model if row.origin == "measured" else f"[{next(number)}] {row.model}"
        for row in report.rows
    ]


def _full_name(row: Row) -> str:
    if row.origin == "measured":
        return row.model
    return f"{', '.join(filter(None, (row.model, row.method)))} (published: {row.about})"


def detail_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of all metrics: those of each model, task and evaluation set."""
    header = ["model", "task", "set", "metric", "score", "seeds"]
    rows = [
        [
            d.model,
            d.task,
            d.part,
            metric_name(d.metric),
            metric_text(d.metric, d.cell),
            str(d.cell.seeds),
        ]
        for d in report.details
    ]
    return header, rows


def figures_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of sizes and speeds; no rows where nothing is known of them."""
    known = [(row.model, row.figures) for row in report.rows if row.figures is not None]
    others = [a.other for a in report.against if a.speed_up is not None]
    header = ["model", "parameters M", "on disk MB", "ms", "runtime"]
    header += [f"speed-up over {other}" for other in others]
    by_name = dict(known)
    rows = [
        [
            model,
            f"{figures.parameters / 1e6:.1f}",
            ABSENT if figures.disk_bytes is None else f"{figures.disk_bytes / 1e6:.1f}",
            ABSENT if figures.latency_ms is None else f"{figures.latency_ms:.2f}",
            RUNTIME_NAMES[figures.runtime],
            *(_times(figures.speed_up_over(by_name.get(other))) for other in others),
        ]
        for model, figures in known
    ]
    return header, rows


def _times(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}×"


def figures_line(report: Report) -> str | None:
    """Say under which conditions latency was measured; None where it was not."""
    timed = (r.figures for r in report.rows if r.figures and r.figures.latency_ms is not None)
    figures = next(timed, None)
    if figures is None:
        return None
    threads = f"{figures.threads} thread{'' if figures.threads == 1 else 's'}"
    hardware = (figures.device or "").partition(":")[2]
    return f"ms: median of one sequence of {figures.length} tokens, {threads}, {hardware}"


def metric_name(metric: str) -> str:
    """Name a metric as papers do: ``has_answer_exact_match`` is "has answer EM"."""
    scored = metric.removesuffix("_threshold")
    found = (k for k in METRIC_NAMES if scored.endswith(f"_{k}"))
    key = scored if scored in METRIC_NAMES else next(found, "")
    head = scored.removesuffix(key).replace("_", " ")
    return f"{head}{METRIC_NAMES.get(key, key)}{' threshold' if scored != metric else ''}"


def metric_text(metric: str, cell: Cell) -> str:
    """Write a metric in per cent; errors, and thresholds of logits, as they are."""
    if not metric.endswith("_threshold") and metric not in ERRORS:
        return cell_text(cell)
    spread = "" if cell.deviation is None else f"±{cell.deviation:.2f}"
    return f"{cell.mean:.2f}{spread}"


def _share(against: Against, column: str) -> str:
    share = against.retained.get(column)
    return ABSENT if share is None else f"{100 * share:.1f} %"


def bootstrap_line(task: str, model: str, other: str, test: Comparison) -> str:
    """Say how sure the difference of two models on a task is, by the examples alone."""
    what = "what an example scores" if test.metric is None else METRIC_NAMES[test.metric]
    return (
        f"{task}, {what}: {model} − {other} = {100 * test.difference:+.1f}, 95 % interval "
        f"{100 * test.low:+.1f} to {100 * test.high:+.1f}, p = {test.p_value:.3g} (paired "
        f"bootstrap, {test.examples} examples)"
    )


def bootstrap_lines(report: Report) -> list[str]:
    """Say in a sentence a task how sure the difference of two models is."""
    return [
        bootstrap_line(task, a.model, a.other, test)
        for a in report.against
        for task, test in a.tests.items()
    ]


def as_markdown(report: Report) -> str:
    """Write a report for a document."""
    parts = [
        f"## {report.suite}",
        "Scores in per cent, mean ± deviation over seeds; published rows are the papers' own.",
        markdown_table(*score_table(report)),
        "### All metrics",
        markdown_table(*detail_table(report)),
    ]
    parts += [
        "\n".join(f"- {line}" for line in lines) for lines in (bootstrap_lines(report),) if lines
    ]
    header, rows = figures_table(report)
    if rows:
        conditions = figures_line(report)
        parts += ["### Size and speed", markdown_table(header, rows)]
        parts += [conditions] if conditions else []
    if report.notes:
        parts += ["### Notes", "\n".join(f"- {note}" for note in report.notes)]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows as a table of Markdown."""
    body = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    lines = [body[0], ["---"] * len(header), *body[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_csv(report: Report) -> str:
    """Write a report for other programs: a line a score, as fractions."""
    stream = io.StringIO()
    writer = CsvWriter(stream)
    writer.writerow(
        ["suite", "model", "origin", "about", "task", "set", "metric", "mean", "deviation", "seeds"]
    )
    for d in report.details:
        writer.writerow(
            [report.suite, d.model, "measured", "", d.task, d.part, d.metric, *_values(d.cell)]
        )
    for row in report.rows:
        for column, cell in row.cells.items():
            writer.writerow(
                [
                    report.suite,
                    row.model,
                    row.origin,
                    _source(row),
                    column,
                    "",
                    "main",
                    *_values(cell),
                ]
            )
        for name, value in _plain_figures(row).items():
            writer.writerow(
                [report.suite, row.model, row.origin, "", "", "", name, repr(value), "", ""]
            )
    for a in report.against:
        about = f"against {a.other}"
        for column, name, value in _compared(a):
            writer.writerow(
                [report.suite, a.model, "measured", about, column, "", name, repr(value), "", ""]
            )
    for note in report.notes:
        writer.writerow([report.suite, "", "note", note, "", "", "", "", "", ""])
    return stream.getvalue()


def _compared(against: Against) -> list[tuple[str, str, float]]:
    """Task, name and value of all that CSV says of two models."""
    figures = [(column, "share", share) for column, share in against.retained.items()]
    for task, test in against.tests.items():
        figures += [
            (task, "difference", test.difference),
            (task, "difference_low", test.low),
            (task, "difference_high", test.high),
            (task, "p_value", test.p_value),
        ]
    if against.speed_up is not None:
        figures.append(("", "speed_up", against.speed_up))
    return figures


def _plain_figures(row: Row) -> dict[str, float]:
    """Size and speed of a model as CSV has them, by names with their units."""
    if row.figures is None:
        return {}
    figures = row.figures
    values = {
        "parameters": figures.parameters,
        "disk_bytes": figures.disk_bytes,
        "latency_ms": figures.latency_ms,
    }
    return {name: value for name, value in values.items() if value is not None}


def _source(row: Row) -> str:
    return ", ".join(filter(None, (row.method, row.about)))


def _values(cell: Cell) -> list[str]:
    return ["" if v is None else repr(v) for v in (cell.mean, cell.deviation, cell.seeds)]


_LATEX = str.maketrans(
    {
        **{c: f"\\{c}" for c in "&%$#_{}"},
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "\\": "\\textbackslash{}",
        "±": "$\\pm$",
        "–": "--",
        "−": "$-$",
        "×": "$\\times$",
        "▲": "$\\blacktriangle$",
    }
)


def as_latex(report: Report) -> str:
    """Write the tables of scores, of size and speed, and the notes; needs ``booktabs``."""
    header, rows = score_table(report)
    measured = sum(row.origin == "measured" for row in report.rows)
    tables = [latex_table(header, rows, measured)]
    header, rows = figures_table(report)
    if rows:
        tables.append(latex_table(header, rows, len(rows)))
    conditions = figures_line(report)
    said = [*bootstrap_lines(report), *([conditions] if conditions else []), *report.notes]
    tables += [f"\\par {{\\footnotesize {_latex(line)}}}\n" for line in said]
    return "\n".join(tables)


def _latex(text: str) -> str:
    """Escape what LaTeX would read otherwise; a minus before a number is not a hyphen."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text).translate(_LATEX)


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]], measured: int) -> str:
    """Write a table with a rule below its first, measured rows; needs ``booktabs``."""
    lines = [" & ".join(map(_latex, row)) + r" \\" for row in (header, *rows)]
    lines = [lines[0], r"\midrule", *lines[1:]]
    if len(rows) > measured:
        lines.insert(2 + measured, r"\midrule")
    body = "\n".join(lines)
    columns = "l" + "r" * (len(header) - 1)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"

"""``kdnas reference``: what the papers report, to be read beside one's own results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from kdnas.cli.tables.formats import as_csv, as_markdown, as_text
from kdnas.errors import NotFoundError, SpecError, unknown_name

if TYPE_CHECKING:
    from kdnas.evaluation.reports.published import PublishedResult

FACTS = (
    *("paper", "year", "table", "section", "split", "model", "method", "objective", "mapping"),
    *("teacher", "teacher_layer", "layers", "heads", "hidden", "intermediate", "activation"),
    *("params_millions", "speedup", "cpu_ms", "gpu_ms", "training", "runs", "note"),
)


def reference(
    paper: Annotated[
        str | None,
        typer.Option(help="One paper: trivedi2023, udagawa2023, wang2021 or wu2021."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Number of one table, such as 4.")] = None,
    task: Annotated[
        str | None, typer.Option(help="Only results with a figure of this task, such as MNLI.")
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="text, markdown, csv (a line a figure) or json.")
    ] = "text",
) -> None:
    """Print published results of distillation, table by table.

    Figures are those of the papers; what a paper does not say is left empty.
    """
    from kdnas.evaluation.reports.published import papers, published

    if output_format not in _FORMATS:
        raise SpecError(unknown_name("format", output_format, _FORMATS))
    if paper is not None and not published(paper=paper):
        raise NotFoundError(unknown_name("paper", paper, papers()))
    found = published(paper=paper, table=table, task=task)
    if not found:
        tables = list(dict.fromkeys(f"{row.paper} table {row.table}" for row in published()))
        raise NotFoundError(
            "no published result fits this choice; leave an option out, or choose among "
            + ", ".join(tables)
        )
    typer.echo(_FORMATS[output_format](found))


def _text(found: Sequence[PublishedResult]) -> str:
    return "\n\n".join(
        "\n".join([_title(rows[0]), as_text(header, cells, right), *_notes(rows)])
        for rows, header, cells, right in _tables(found)
    )


def _markdown(found: Sequence[PublishedResult]) -> str:
    return "\n\n".join(
        "\n\n".join([f"### {_title(rows[0])}", as_markdown(header, cells, right), *_notes(rows)])
        for rows, header, cells, right in _tables(found)
    )


def _csv(found: Sequence[PublishedResult]) -> str:
    lines = [
        [
            *(_cell(getattr(row, fact)) for fact in FACTS),
            *(_cell(part) for part in (score.task, score.metric, score.value, score.deviation)),
        ]
        for row in found
        for score in row.scores
    ]
    return as_csv([*FACTS, "task", "metric", "value", "deviation"], lines)


def _json(found: Sequence[PublishedResult]) -> str:
    return json.dumps([asdict(row) for row in found], ensure_ascii=False)


_FORMATS: dict[str, Callable[[Sequence[PublishedResult]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}

Laid = tuple[list["PublishedResult"], list[str], list[list[str]], list[str]]


def _tables(found: Sequence[PublishedResult]) -> list[Laid]:
    """Rows of each table with header, cells and the columns of figures; empty columns left out."""
    laid = []
    for _, group in groupby(found, key=lambda row: (row.paper, row.table, row.about)):
        rows = list(group)
        tasks = list(dict.fromkeys(score.task for row in rows for score in row.scores))
        columns: dict[str, list[str]] = {
            "model": [row.model for row in rows],
            "method": [row.method for row in rows],
            "teacher": [_cell(row.teacher) for row in rows],
            "architecture": [_architecture(row) for row in rows],
            "M par.": [_cell(row.params_millions) for row in rows],
            "faster": [_cell(row.speedup) for row in rows],
            "CPU ms": [_cell(row.cpu_ms) for row in rows],
            "GPU ms": [_cell(row.gpu_ms) for row in rows],
            **{task: [_figure(row, task) for row in rows] for task in tasks},
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        right = [name for name in columns if name not in {"model", "method", "teacher"}]
        cells = [list(line) for line in zip(*columns.values(), strict=True)]
        laid.append((rows, list(columns), cells, right))
    return laid


def _title(row: PublishedResult) -> str:
    return f"{row.authors} {row.year}, Table {row.table} ({row.section}): {row.about}"


def _notes(rows: Sequence[PublishedResult]) -> list[str]:
    trained = list(dict.fromkeys(row.training for row in rows if row.training))
    notes = [f"Training: {'; or '.join(trained)}."] if trained else []
    runs = rows[0].runs
    if runs:
        notes.append(f"Scores are means of {runs} runs.")
    notes += [f"{row.model}, {row.method}: {row.note}." for row in rows if row.note]
    return notes


def _architecture(row: PublishedResult) -> str:
    """Write layers,heads,hidden,intermediate,activation; ? where the paper does not say."""
    parts = (row.layers, row.heads, row.hidden, row.intermediate)
    if all(part is None for part in parts):
        return ""
    written = ["?" if part is None else str(part) for part in parts]
    return ",".join([*written, row.activation] if row.activation else written)


def _figure(row: PublishedResult, task: str) -> str:
    score = row.score(task)
    if score is None:
        return ""
    deviation = "" if score.deviation is None else f" ±{score.deviation}"
    return f"{_cell(score.value)}{deviation}"


def _cell(value: object) -> str:
    return "" if value is None else str(value)

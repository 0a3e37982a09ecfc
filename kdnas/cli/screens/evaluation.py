"""How an evaluation looks: what goes into it, each of its fine-tunings, and its report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kdnas.cli.screens.console import say, say_each
from kdnas.cli.tables.formats import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.evaluations.prepare import PreparedEvaluation
    from api.evaluations.run import FinishedPair
    from kdnas.evaluation.reports.report import Report
    from kdnas.evaluation.tasks.examples import Reading


def say_inputs(prepared: PreparedEvaluation) -> None:
    """Say what is evaluated, on which data and how."""
    spec = prepared.spec
    say(f"model      {spec.model_name}  (fingerprint {prepared.model.fingerprint})")
    say(
        f"data       {spec.data_dir}  (--data-dir)"
        if spec.data_dir
        else "data       the Hugging Face hub  (default; change it with --data-dir)"
    )
    for planned in prepared.tasks:
        s, kept = planned.settings, sum(planned.evaluation_examples.values())
        length = f", at most {s.max_steps} steps" if s.max_steps else ""
        split = "" if planned.official_split else "; not the official split"
        parts = f"{kept} to be scored on ({', '.join(planned.evaluation_examples)}){split}"
        rates = (
            f"learning rate {s.learning_rate:g}, {s.epochs:g} epochs"
            if s.grid is None
            else f"learning rate and epochs from a grid of {s.grid.size}"
        )
        say(
            f"task       {planned.task.name}: {planned.train_examples} to learn from, {parts}; "
            f"{rates}, batches of {s.batch_size}{length}"
            if planned.task.fine_tuned
            else f"task       {planned.task.name}: {parts}, as the model is"
        )
        say_each(reading_lines(planned.readings))
    say_each(
        f"left out   {reason.partition(': looked for')[0]}" for reason in prepared.absent.values()
    )
    drawn = {seed: None for planned in prepared.tasks for seed in planned.seeds(spec.seeds)}
    dtype = prepared.tasks[0].settings.dtype
    say(f"seeds      {', '.join(map(str, drawn))}; {prepared.device}, {dtype}")


def reading_lines(readings: Sequence[Reading]) -> Iterator[str]:
    """How files were understood, and the first thing that they say."""
    chosen = [one for one in readings if one.about]
    for one in chosen:
        yield f"read       {one.source}: {one.about}"
    if chosen:
        yield f"first      {chosen[0].first}"


def say_finished(pair: FinishedPair) -> None:
    """Say what came of one fine-tuning."""
    from kdnas.evaluation.reports.formats import metric_name, metric_text
    from kdnas.evaluation.reports.report import Cell

    result = pair.result
    figures = "; ".join(
        f"{part} "
        + ", ".join(f"{metric_name(m)} {metric_text(m, Cell.of([v]))}" for m, v in values.items())
        for part, values in result.metrics.items()
    )
    how = "known from before" if pair.known else f"{result.steps} steps, {result.seconds:.0f} s"
    if result.settings.grid is not None:
        chosen = result.settings
        how = f"learning rate {chosen.learning_rate:g}, {chosen.epochs:g} epochs; {how}"
    say(f"  {result.task} seed {result.seed}: {figures}  ({how})")


def say_trained_again(pair: FinishedPair) -> None:
    """Say why a fine-tuning that is known is done again."""
    say(
        f"  {pair.result.task} seed {pair.result.seed}: known from before, but its model was not "
        "kept; it is trained again"
    )


def report_lines(report: Report) -> list[str]:
    """The tables, where their figures come from, and notes."""
    from kdnas.evaluation.reports.formats import (
        bootstrap_lines,
        figures_line,
        figures_table,
        score_table,
        source_lines,
    )

    header, rows = score_table(report, numbered=True)
    lines = [
        "",
        f"{report.suite}, per cent, mean ± deviation over seeds",
        as_text(header, rows, right=report.columns),
    ]
    sources = source_lines(report)
    lines += ["published:", *(f"  {line}" for line in sources)] if sources else []
    lines += bootstrap_lines(report)
    header, rows = figures_table(report)
    if rows:
        right = [name for name in header if name not in ("model", "runtime")]
        table = as_text(header, rows, right=right)
        lines += ["", table, figures_line(report) or "latency was not measured"]
    return [*lines, *(f"note: {note}" for note in report.notes)]


def report_texts(report: Report) -> dict[str, str]:
    """The report in every format, by the endings of their files."""
    from kdnas.evaluation.reports.formats import as_csv, as_latex, as_markdown
    from kdnas.evaluation.reports.report import report_json

    return {
        "md": as_markdown(report),
        "csv": as_csv(report),
        "tex": as_latex(report),
        "json": json.dumps(report_json(report), indent=2) + "\n",
    }

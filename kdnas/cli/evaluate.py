"""``kdnas evaluate``: fine-tune a model on the tasks of a suite and say how good it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common, evaluation, models
from kdnas.cli.options.saving_models import Saving

if TYPE_CHECKING:
    from api.evaluations.prepare import PreparedEvaluation
    from api.evaluations.run import FinishedPair
    from kdnas.evaluation.finetuning.training import FinetuneProgress
    from kdnas.evaluation.reports.report import Report
    from kdnas.specs.evaluation import EvaluationSpec


def evaluate(
    suite: Annotated[
        str,
        typer.Option(help="glue, xnli, squad, squad2, xquad, tydiqa, mlqa, ner, sts, or own."),
    ],
    model: Annotated[
        str | None, typer.Argument(help="Model folder, hub id, or alias such as minilm.")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            help="Tasks of the suite, with commas or repeated.  [default: all that have data]"
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the tasks' files as they are published; of a task of your own, its "
            "file, or a folder with a file a part.  [default: the data sets of the Hugging Face "
            "hub]"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Fine-tunings of each task.")] = 3,
    max_steps: Annotated[
        int | None, typer.Option(help="At most this many optimiser steps a fine-tuning.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the examples.  [default: as published]")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples of a step.  [default: as published]")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak learning rate.  [default: as published]")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of an example, or of a window of a context.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens that neighbouring windows of a context share.")
    ] = None,
    early_stopping: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCHS",
            help="Stop after so many epochs without a better score on examples that are kept for "
            "it; keep the best one.",
        ),
    ] = None,
    grid: evaluation.Grid = False,
    grid_learning_rates: evaluation.GridLearningRates = None,
    grid_epochs: evaluation.GridEpochs = None,
    kind: evaluation.Kind = None,
    text: evaluation.Text = None,
    pair: evaluation.Pair = None,
    label: evaluation.Label = None,
    metrics: evaluation.Metrics = None,
    task_name: evaluation.TaskName = None,
    teacher: models.Teacher = None,
    int8: models.Int8 = False,
    keep_layers: models.KeepLayers = None,
    latency: models.Latency = True,
    latency_length: models.LatencyLength = None,
    latency_threads: models.LatencyThreads = None,
    card: models.Card = True,
    save_models: models.SaveModels = None,
    save_seeds: models.SaveSeeds = "best",
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A model that was evaluated in the same way, such as the teacher; may be "
            "repeated. Says what share of its score is retained.",
        ),
    ] = None,
    dtype: common.Dtype = None,
    device: common.Device = None,
    threads: common.Threads = None,
    jobs: evaluation.Jobs = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the report: Markdown, CSV, JSON and LaTeX."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Fine-tune a model on the tasks of a suite and report its scores.

    With the published hyper-parameters and three seeds, unless told otherwise. Tasks and seeds
    that were finished before are looked up, so an interrupted command goes on when it is run again.
    """
    from kdnas.cli.options.inputs import nested
    from kdnas.specs.evaluation import EvaluationSpec

    evaluated, beside = models.model_and_teacher(model, teacher)
    values = {
        "model": evaluated,
        "int8": int8 or None,
        "card": card,
        "keep_layers": keep_layers,
        "suite": suite.lower(),
        "tasks": [part.strip() for text in tasks or [] for part in text.split(",") if part.strip()],
        "data_dir": str(data_dir) if data_dir else None,
        "seeds": seeds,
        "max_steps": max_steps,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "stride": stride,
        "early_stopping": early_stopping,
        "dtype": dtype,
        "device": device,
        "threads": threads,
        **evaluation.grid_values(grid, grid_learning_rates, grid_epochs),
        **evaluation.own_values(kind, text, pair, label, metrics, task_name),
    }
    timed = models.latency_values(latency, latency_length, latency_threads)
    spec = EvaluationSpec.read({**nested(values), **timed}, "evaluate")
    saving = Saving(save_models, save_seeds) if save_models else None
    _evaluate(spec, beside, tuple(against or ()), jobs, saving, output, as_json)


def _evaluate(
    spec: EvaluationSpec,
    teacher: str | None,
    against: tuple[str, ...],
    jobs: int | None,
    saving: Saving | None,
    output: Path | None,
    as_json: bool,
) -> None:
    from api.evaluations.command import check_saving, run_evaluation
    from api.evaluations.prepare import prepare_evaluation, prepared_for
    from api.evaluations.report import build_report, stored_results
    from kdnas.cli.screens.console import bar, say
    from kdnas.cli.screens.interrupt import interruptible
    from kdnas.db.migrate import open_database
    from kdnas.evaluation.reports.report import report_json
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    if output is not None:
        _check_output(output)
    with open_database(settings) as database:
        with bar("reading data", unit="tasks") as reading:
            read: list[str] = []

            def on_task(name: str) -> None:
                reading.at(len(read), note=name)
                read.append(name)

            prepared = prepare_evaluation(spec, on_task)
        _say_inputs(prepared)
        if saving is not None:
            check_saving(prepared, saving.folder)
            prepared = replace(prepared, keeps=True)
        beside = prepared_for(teacher, prepared) if teacher else None
        if beside is not None and beside.is_like(prepared):
            beside = None
        if beside is not None:
            say(f"teacher    {teacher}  (fingerprint {beside.model.fingerprint})")
        for other in against:
            stored_results(prepared, other, database)  # better said before the work than after it
        with interruptible("the evaluation") as interrupt, bar("evaluating", unit="") as shown:

            def tell(planned: Any, seed: int, progress: FinetuneProgress) -> None:
                loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
                done = f"{progress.done} of {progress.total}"
                shown.at(
                    progress.done / progress.total,
                    1,
                    f"{planned.task.name} seed {seed}: {progress.phase} {done}{loss}",
                )

            if beside is not None:
                say(f"{prepared.spec.model_name}:")
            outcome = run_evaluation(
                prepared, database, settings, jobs, tell, _say_finished, interrupt
            )
            finished, stopped = outcome.finished, outcome.stopped
            if beside is not None and not stopped:
                ref = beside.spec.model.ref
                say(f"{ref}:")
                rest = run_evaluation(
                    beside, database, settings, jobs, tell, _say_finished, interrupt
                )
                finished, stopped = (*finished, *rest.finished), rest.stopped
                against = against if stopped else tuple(dict.fromkeys((ref, *against)))
            if saving is not None and not stopped:
                stopped = not saving.save(
                    prepared, outcome.finished, database, settings, tell, interrupt
                )
        own = [pair.record for pair in outcome.finished]
        report = build_report(prepared, own, against, database, settings, say)
    if report.columns:
        _show(report, as_json)
        if not stopped:
            _say_card(prepared, report)
        if output is not None and not stopped:
            _write(report, output)
            say(f"report     {output}")
    if as_json:
        typer.echo(
            json.dumps(
                {
                    **report_json(report),
                    "stopped": stopped,
                    "evaluations": [
                        {"id": pair.record.id, "model": pair.record.model, **pair.result.to_json()}
                        for pair in finished
                    ],
                }
            )
        )
    if stopped:
        say("stopped; what is finished is kept: run the same command again to go on")
        raise typer.Exit(130)


def _say_card(prepared: PreparedEvaluation, report: Report) -> None:
    from api.evaluations.report import add_to_card
    from kdnas.cli.screens.console import say

    problem = add_to_card(prepared, report)
    if problem is not None:
        say(f"warning: {problem}")


def _say_inputs(prepared: PreparedEvaluation) -> None:
    from kdnas.cli.screens.console import say

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
    for reason in prepared.absent.values():
        say(f"left out   {reason.partition(': looked for')[0]}")
    drawn = {seed: None for planned in prepared.tasks for seed in planned.seeds(spec.seeds)}
    seeds = ", ".join(map(str, drawn))
    first = prepared.tasks[0].settings
    say(f"seeds      {seeds}; {prepared.device}, {first.dtype}")


def _say_finished(pair: FinishedPair) -> None:
    from kdnas.cli.screens.console import say
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


def _show(report: Report, as_json: bool) -> None:
    """Print the tables."""
    from kdnas.cli.screens.console import show_results
    from kdnas.cli.tables.formats import as_text
    from kdnas.evaluation.reports.formats import (
        bootstrap_lines,
        figures_line,
        figures_table,
        score_table,
        source_lines,
    )

    show = show_results(as_json)
    header, rows = score_table(report, numbered=True)
    show("")
    show(f"{report.suite}, per cent, mean ± deviation over seeds")
    show(as_text(header, rows, right=report.columns))
    sources = source_lines(report)
    if sources:
        show("published:")
    for line in sources:
        show(f"  {line}")
    for line in bootstrap_lines(report):
        show(line)
    header, rows = figures_table(report)
    if rows:
        show("")
        show(
            as_text(
                header, rows, right=[name for name in header if name not in ("model", "runtime")]
            )
        )
        show(figures_line(report) or "latency was not measured")
    for note in report.notes:
        show(f"note: {note}")


def _check_output(output: Path) -> None:
    from kdnas.errors import ConflictError

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConflictError(
            f"output folder {output} cannot be made ({error.strerror}); name another with --output"
        ) from None


def _write(report: Report, output: Path) -> None:
    from kdnas.evaluation.reports.formats import as_csv, as_latex, as_markdown
    from kdnas.evaluation.reports.report import report_json

    name = f"evaluation-{report.suite}"
    for suffix, text in (
        ("md", as_markdown(report)),
        ("csv", as_csv(report)),
        ("tex", as_latex(report)),
        ("json", json.dumps(report_json(report), indent=2) + "\n"),
    ):
        (output / f"{name}.{suffix}").write_text(text, "utf-8")

"""``kdnas evaluate``: fine-tune a model on the tasks of a suite and say how good it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common, own_table
from kdnas.cli.options.outputs import output_folder, write_report
from kdnas.cli.options.places import At, request_of
from kdnas.cli.screens.console import bar, say, say_each, show_results
from kdnas.cli.screens.evaluation import (
    report_lines,
    report_texts,
    say_finished,
    say_inputs,
    say_trained_again,
)
from kdnas.cli.screens.interrupt import interruptible
from kdnas.cli.screens.preparing import read_data_on_screen
from kdnas.cli.screens.understood import show_understood
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_json
from kdnas.errors import RequestError, unknown_name

if TYPE_CHECKING:
    from kdnas.evaluation.finetuning.training import FinetuneProgress
    from kdnas.specs.evaluation import EvaluationSpec


PANEL = "What a decider asks"
SEEDS_SAVED = ("best", "each")


def evaluate(
    suite: Annotated[
        str,
        typer.Option(help="glue, xnli, squad, squad2, xquad, tydiqa, mlqa, ner, sts, or own."),
        At("suite", str.lower),
    ],
    model: Annotated[
        str | None, typer.Argument(help="Model folder, hub id, or alias such as minilm.")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            help="Tasks of the suite, with commas or repeated.  [default: all that have data]"
        ),
        At("tasks", common.names_in),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the tasks' files as they are published; of a task of your own, its "
            "file, or a folder with a file a part.  [default: the data sets of the Hugging Face "
            "hub]"
        ),
        At("data_dir", str),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Fine-tunings of each task."), At("seeds")] = 3,
    max_steps: Annotated[
        int | None,
        typer.Option(help="At most this many optimiser steps a fine-tuning."),
        At("max_steps"),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Passes over the examples.  [default: as published]"),
        At("epochs"),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Examples of a step.  [default: as published]"),
        At("batch_size"),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak learning rate.  [default: as published]"),
        At("learning_rate"),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(help="Tokens of an example, or of a window of a context."),
        At("max_length"),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(help="Tokens that neighbouring windows of a context share."),
        At("stride"),
    ] = None,
    early_stopping: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCHS",
            help="Stop after so many epochs without a better score on examples that are kept for "
            "it; keep the best one.",
        ),
        At("early_stopping"),
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Choose learning rate and epochs of each task by trials, on examples that are not "
            "scored; the published grid unless the next options say otherwise.",
        ),
        At("grid", common.empty),
    ] = False,
    grid_learning_rates: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Learning rates of the grid.  [default: 1e-5,2e-5,3e-5,5e-5]",
        ),
        At("grid.learning_rates", partial(common.numbers, "--grid-learning-rates")),
    ] = None,
    grid_epochs: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Epochs of the grid.  [default: 3,5,10]"),
        At("grid.epochs", partial(common.numbers, "--grid-epochs")),
    ] = None,
    kind: Annotated[own_table.Kind, own_table.OF_A_SUITE.kind] = None,
    text: Annotated[own_table.Text, own_table.OF_A_SUITE.text] = None,
    pair: Annotated[own_table.Pair, own_table.OF_A_SUITE.pair] = None,
    label: Annotated[own_table.Label, own_table.OF_A_SUITE.label] = None,
    metrics: Annotated[own_table.Metrics, own_table.OF_A_SUITE.metrics] = None,
    word_column: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="ner: column of the words, from 1 on.  [default: found by what is in it]",
        ),
        At("columns.word"),
    ] = None,
    tag_column: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="ner: column of the tags, from 1 on.  [default: found by what is in it]",
        ),
        At("columns.tag"),
    ] = None,
    task_name: Annotated[
        str | None,
        typer.Option(
            help="own: what the report calls the task.  [default: the name of the file or folder]",
        ),
        At("own.name"),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Evaluate this model too, in the same way, and say what share of its scores is "
            "retained; alone, without MODEL, evaluate it only.",
        ),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            rich_help_panel=PANEL,
            help="Quantise MODEL's weights to 8 bits after the fine-tuning, and score that.",
        ),
        At("int8"),
    ] = False,
    keep_layers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=PANEL,
            help="Cut off MODEL's layers above the first N before the fine-tuning.",
        ),
        At("keep_layers"),
    ] = None,
    training: Annotated[
        bool,
        typer.Option(
            "--training/--no-training",
            rich_help_panel=PANEL,
            help="Score MODEL as it is, with the head that it has, and train nothing.",
        ),
        At("training"),
    ] = True,
    latency: Annotated[
        bool,
        typer.Option(
            "--latency/--no-latency",
            rich_help_panel=PANEL,
            help="Measure on the CPU how long models take for one sequence.",
        ),
    ] = True,
    latency_length: Annotated[
        int | None,
        typer.Option(rich_help_panel=PANEL, help="Tokens of that sequence.  [default: 32]"),
        At("latency.length"),
    ] = None,
    latency_threads: Annotated[
        int | None,
        typer.Option(rich_help_panel=PANEL, help="Threads for it.  [default: 1]"),
        At("latency.threads"),
    ] = None,
    card: Annotated[
        bool,
        typer.Option(
            "--card/--no-card",
            rich_help_panel=PANEL,
            help="Put the scores into the model card of a student that kdnas has made.",
        ),
        At("card"),
    ] = True,
    save_models: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=PANEL,
            help="Keep MODEL's fine-tuned model of each task: a Hugging Face folder in DIR.",
        ),
    ] = None,
    save_seeds: Annotated[
        str,
        typer.Option(rich_help_panel=PANEL, help="Which seeds' models: best or each."),
    ] = "best",
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A model that was evaluated in the same way, such as the teacher; may be "
            "repeated. Says what share of its score is retained.",
        ),
    ] = None,
    dtype: Annotated[common.Dtype, At("dtype")] = None,
    device: Annotated[common.Device, At("device")] = None,
    threads: Annotated[common.Threads, At("threads")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fine-tunings beside each other; 1 works in this process, without a cluster.  "
            "[default: what the machine, or the cluster of KDNAS_RAY_ADDRESS, has room for]",
        ),
    ] = None,
    show_data: Annotated[
        bool,
        typer.Option(
            "--show-data",
            help="Only print how the data were understood: files, labels, examples. Needs no "
            "MODEL, and trains nothing.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report (Markdown, CSV, JSON and LaTeX), and for what was said "
            "about each example (JSON Lines)."
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Fine-tune a model on the tasks of a suite and report its scores.

    With the published hyper-parameters and three seeds, unless told otherwise. Tasks and seeds
    that were finished before are looked up, so an interrupted command goes on when it is run again.
    """
    given = locals()
    from kdnas.specs.evaluation import EvaluationPlanSpec, EvaluationSpec

    if show_data:
        wanted = request_of(evaluate, given)
        plan = {key: wanted[key] for key in wanted if key in EvaluationPlanSpec.model_fields}
        show_understood(EvaluationPlanSpec.read(plan, "evaluate"), as_json)
        return
    if model is None and teacher is None:
        raise RequestError("name a MODEL to evaluate, a --teacher, or both")
    evaluated, beside = (teacher, None) if model is None else (model, teacher)
    request = {"model": evaluated, **request_of(evaluate, given)}
    if not latency:
        request["latency"] = None
    spec = EvaluationSpec.read(request, "evaluate")
    if save_models and save_seeds not in SEEDS_SAVED:
        raise RequestError(unknown_name("choice of --save-seeds", save_seeds, SEEDS_SAVED))
    saving = (save_models, save_seeds) if save_models else None
    with output_folder(output):
        _evaluate(spec, beside, tuple(against or ()), jobs, saving, output, as_json)


def _evaluate(
    spec: EvaluationSpec,
    teacher: str | None,
    against: tuple[str, ...],
    jobs: int | None,
    saving: tuple[Path, Any] | None,
    output: Path | None,
    as_json: bool,
) -> None:
    from api.evaluations.command import check_saving, run_evaluation, save_models
    from api.evaluations.predictions import put_predictions
    from api.evaluations.prepare import prepared_for
    from api.evaluations.report import add_to_card, build_report, stored_results
    from kdnas.evaluation.reports.report import report_json

    with stored() as (database, settings):
        prepared = read_data_on_screen(spec)
        say_inputs(prepared)
        if saving is not None:
            check_saving(prepared, saving[0])
            prepared = replace(prepared, keeps=True)
        beside = prepared_for(teacher, prepared) if teacher else None
        if beside is not None and beside.is_like(prepared):
            beside = None
        if beside is not None:
            say(f"teacher    {teacher}  (fingerprint {beside.model.fingerprint})")
        for other in against:
            stored_results(prepared, other, database)  # better said before the work than after it
        stopping = interruptible("the evaluation", (database, settings))
        with stopping as interrupt, bar("evaluating", unit="") as shown:

            def tell(planned: Any, seed: int, progress: FinetuneProgress) -> None:
                what = f"{planned.task.name} seed {seed}: {progress.phase}"
                if progress.waits:
                    say(f"  {what}")
                    return
                loss = "" if progress.loss is None else f", loss {progress.loss:.4f}"
                done = f"{progress.done} of {progress.total}"
                shown.at(progress.done / progress.total, 1, f"{what} {done}{loss}")

            if beside is not None:
                say(f"{prepared.spec.model_name}:")
            outcome = run_evaluation(
                prepared, database, settings, jobs, tell, say_finished, interrupt
            )
            finished, stopped = outcome.finished, outcome.stopped
            if beside is not None and not stopped:
                ref = beside.spec.model.ref
                say(f"{ref}:")
                rest = run_evaluation(
                    beside, database, settings, jobs, tell, say_finished, interrupt
                )
                finished, stopped = (*finished, *rest.finished), rest.stopped
                against = against if stopped else tuple(dict.fromkeys((ref, *against)))
            if saving is not None and not stopped:
                folder, which = saving
                folders = save_models(
                    prepared,
                    outcome.finished,
                    folder,
                    which,
                    database,
                    settings,
                    tell,
                    say_trained_again,
                    interrupt,
                )
                say_each(f"model      {one}  (kdnas predict {one} TEXT)" for one in folders or ())
                stopped = folders is None
        own = [pair.record for pair in outcome.finished]
        report = build_report(prepared, own, against, database, settings, say)
        place = (output or Path()) / f"predictions-{report.suite}"
        every = [] if output is None or stopped else [pair.record for pair in finished]
        answers = put_predictions(place, every, database, settings)
    if report.columns:
        show_results(as_json)("\n".join(report_lines(report)))
        problem = None if stopped else add_to_card(prepared, report)
        if problem is not None:
            say(f"warning: {problem}")
        if output is not None and not stopped:
            write_report(output, f"evaluation-{report.suite}", report_texts(report))
            say(f"report     {output}")
            if answers:
                say(f"answers    {place}  (text, gold and prediction of each example)")
    if as_json:
        made = [
            {"id": pair.record.id, "model": pair.record.model, **pair.result.to_json()}
            for pair in finished
        ]
        print_json({**report_json(report), "stopped": stopped, "evaluations": made})
    if stopped:
        say("stopped; what is finished is kept: run the same command again to go on")
        raise typer.Exit(130)

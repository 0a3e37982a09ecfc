"""``kdnas task-distill``: distil a student for one task, or go on with that."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common, own_table
from kdnas.cli.options.places import At, refuse_with_resume, request_of
from kdnas.cli.screens.console import say, show_results
from kdnas.cli.screens.interrupt import exit_unless_done, interruptible
from kdnas.cli.screens.task_distillation import TaskScreen, grid_lines, report_lines
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_answer
from kdnas.errors import TrainingError

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.records import JobRecord
    from kdnas.settings import Settings

TUNED = "How the teacher learns the task first"


def _seeds(text: str) -> int | list[int]:
    """Read ``5``, which are as many, or ``0,7``, which are those."""
    named = common.counts("--seeds", text.rstrip(","))
    return named if "," in text else named[0]


def task_distill(
    task: Annotated[
        str | None,
        typer.Option(
            help="cola, mnli, mrpc, qnli, qqp, rte, sst-2, sts-b or another that is known, or a "
            "name for one of your own."
        ),
        At("task"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the task's files as they are published; of a task of your own, its "
            "file, or a folder with a file a part.  [default: the Hugging Face hub]"
        ),
        At("data_dir", str),
    ] = None,
    teacher: common.Teacher = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="How the student learns, with commas or repeated: none, vanilla-kd, pkd, mhkd, "
            "alp-kd, takd, dih, annealing-kd, universal-kd-il, universal-kd-cg, universal-kd-ca or "
            "universal-kd-weighted.  [default: universal-kd-il]"
        ),
        At("methods", common.names_in),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="first-layers:4 or layers:1,3,5 of the teacher, bilstm, gated-cnn, an "
            "architecture such as 4,12,576,768,gelu, a model's folder, or distillation: and the id "
            "or name of a full distillation, for its student.  [default: first-layers:3]"
        ),
        At("student"),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N|N,N", help="How many, or which, for each method.  [default: 1]"),
        At("seeds", _seeds),
    ] = None,
    config: common.Config = None,
    published: Annotated[
        str | None,
        typer.Option(
            help="Whose hyper-parameters stand in for what is not given: bert-4, distilroberta, "
            "bilstm or gated-cnn.  [default: those that fit student and teacher]"
        ),
        At("published"),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Of the first stage, on the teacher.  [default: as published]"),
        At("epochs"),
    ] = None,
    finetune_epochs: Annotated[
        float | None,
        typer.Option(help="Of the second stage, on the labels.  [default: as published]"),
        At("finetune_epochs"),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="At most this many optimiser steps in each stage, for trying."),
        At("max_steps"),
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
    beta: Annotated[
        float | None,
        typer.Option(
            help="Weight of the distillation of the outputs; a method's own loss has the rest.  "
            "[default: as published]"
        ),
        At("beta"),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Of the student.  [default: as published]"),
        At("dropout"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Of the distillation of the outputs.  [default: 1]"),
        At("temperature"),
    ] = None,
    warmup_fraction: Annotated[common.WarmupFraction, At("warmup_fraction")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of an example.  [default: 128]"), At("max_length")
    ] = None,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Choose batch size, learning rate and beta of each method by trials on held-out "
            "examples; the published grid unless the next options say otherwise.",
        ),
        At("grid", common.empty),
    ] = False,
    grid_batch_sizes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of the grid.  [default: 8,16,32]"),
        At("grid.batch_sizes", partial(common.counts, "--grid-batch-sizes")),
    ] = None,
    grid_learning_rates: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of the grid.  [default: 2e-5,5e-5]"),
        At("grid.learning_rates", partial(common.numbers, "--grid-learning-rates")),
    ] = None,
    grid_betas: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of the grid.  [default: 0.2,0.5,0.7]"),
        At("grid.betas", partial(common.numbers, "--grid-betas")),
    ] = None,
    layer_choice: Annotated[
        str | None,
        typer.Option(
            help="Which teacher layers pkd and mhkd match inner layers with: skip spreads them, "
            "last takes those before the last.  [default: skip]"
        ),
        At("layer_choice"),
    ] = None,
    teacher_layers: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Which teacher layers pkd, mhkd and dih learn from."),
        At("teacher_layers", partial(common.counts, "--teacher-layers")),
    ] = None,
    assistant: Annotated[
        str | None,
        typer.Option(
            help="takd: the student between teacher and student, named as --student.  "
            "[default: first layers, half way]"
        ),
        At("assistant"),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            help="Compute the teacher's outputs once and keep them: auto, always or never.  "
            "[default: auto]"
        ),
        At("cache"),
    ] = None,
    teacher_fine_tune: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TUNED,
            help="auto, or always: also if it has a head, such as that of another task.  "
            "[default: auto]",
        ),
        At("teacher.fine_tune"),
    ] = None,
    teacher_learning_rate: Annotated[
        float | None,
        typer.Option(rich_help_panel=TUNED, help="Peak learning rate.  [default: as published]"),
        At("teacher.learning_rate"),
    ] = None,
    teacher_epochs: Annotated[
        float | None,
        typer.Option(rich_help_panel=TUNED, help="Passes over the data.  [default: as published]"),
        At("teacher.epochs"),
    ] = None,
    teacher_batch_size: Annotated[
        int | None,
        typer.Option(rich_help_panel=TUNED, help="Examples of a step.  [default: as published]"),
        At("teacher.batch_size"),
    ] = None,
    teacher_seed: Annotated[
        int | None,
        typer.Option(rich_help_panel=TUNED, help="Of that, and its pseudo-classifiers."),
        At("teacher.seed"),
    ] = None,
    warmup_epochs: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=TUNED,
            help="Passes over the data in which pseudo-classifiers on its layers are trained.  "
            "[default: 10]",
        ),
        At("teacher.warmup_epochs"),
    ] = None,
    warmup_states: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TUNED,
            help="What these learn from: raw, or standardised, which reads more from lower "
            "layers.  [default: raw]",
        ),
        At("teacher.warmup_states"),
    ] = None,
    kind: Annotated[own_table.Kind, own_table.OF_A_TASK.kind] = None,
    text: Annotated[own_table.Text, own_table.OF_A_TASK.text] = None,
    pair: Annotated[own_table.Pair, own_table.OF_A_TASK.pair] = None,
    label: Annotated[own_table.Label, own_table.OF_A_TASK.label] = None,
    metrics: Annotated[own_table.Metrics, own_table.OF_A_TASK.metrics] = None,
    dtype: Annotated[common.Dtype, At("dtype")] = None,
    device: Annotated[common.Device, At("device")] = None,
    threads: Annotated[common.Threads, At("threads")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="New folder for the best student; of several methods, for a folder each.  "
            "[default: under KDNAS_HOME]"
        ),
        At("output", str),
    ] = None,
    name: common.Name = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID|NAME", help="Go on with a stored one; try again the runs that failed."
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Distil a student for one task: on its labels, and on a teacher that has learned it.

    The teacher is fine-tuned first unless it has a head for the task; that is done once. Each
    method learns with each seed; what is chosen is chosen on a held-out tenth of the training
    examples, or on the development part where the test part is scored. Ctrl-C ends in good order;
    `--resume` goes on.
    """
    given = locals()
    if resume is not None:
        refuse_with_resume(task_distill, given, {"resume", "as_json"})
        _resume(resume, as_json)
    else:
        _start(request_of(task_distill, given), config, as_json)


def _start(values: dict[str, Any], config: Path | None, as_json: bool) -> None:
    from api.task_distillations.run import create_task_distillation
    from kdnas.specs.load import load_yaml, merge
    from kdnas.specs.task_distillation import TRIED, TaskDistillationSpec

    with stored() as (database, settings):
        environment = {"teacher": settings.teacher} if settings.teacher else {}
        given = load_yaml(config) if config else {}
        request = merge(environment, given, values, chosen_by_grid=TRIED)
        spec = TaskDistillationSpec.read(request, "task-distill")
        record = create_task_distillation(spec, database, settings, on_wait=say)
        say(f"distilling {record.name}  (id {record.id})")
        _run_and_report(record, database, settings, as_json)


def _resume(reference: str, as_json: bool) -> None:
    from kdnas.db.queue.transitions import resume_here
    from kdnas.db.repository import task_distillations

    with stored() as (database, settings):
        with database.write() as session:
            record = task_distillations.get_task_distillation(session, reference)
            resume_here(session, record.id)
            record = task_distillations.get_task_distillation(session, record.id)
        say(f"distilling {record.name}  (id {record.id}, {record.status}), spec as stored")
        _run_and_report(record, database, settings, as_json)


def _run_and_report(
    record: JobRecord, database: Database, settings: Settings, as_json: bool
) -> None:
    """Run what is stored on the screen and print its report; what is finished is only printed.

    Raises:
        KdnasError: it failed.
        typer.Exit: 1 if it was cancelled, 130 if it was interrupted or paused.
    """
    from api.jobs.reading import read_job
    from api.task_distillations.kind import KIND
    from api.task_distillations.report import task_report
    from api.task_distillations.run import run_stored_task_distillation

    status = record.status
    way_on = f"kdnas task-distill --resume {record.name}"
    if status != "succeeded":
        again = None if status == "cancelled" else way_on
        hopeless = (TrainingError,)  # all of it would come to the same end again
        stopping = interruptible("the distillation", (database, settings), again, hopeless)
        with stopping as interrupt, TaskScreen() as screen:
            status = run_stored_task_distillation(
                record.id, database, settings, screen.watchers, interrupt
            )
    with database.read() as session:
        found = read_job(session, record.id, KIND)
        report = task_report(session, settings, record.id)
    if status == "paused":
        say(f"paused; go on with: {way_on}")
    lines = [*grid_lines(found["grids"]), *report_lines(report, found["output"])]
    show_results(as_json)("\n".join(lines))
    if as_json:
        print_answer({**found, "report": report})
    exit_unless_done(status)

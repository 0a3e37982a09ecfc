"""``kdnas full-distill``: distil one architecture to the end, or go on with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import At, refuse_with_resume, request_of
from kdnas.cli.options.pushing import check_push_options, push
from kdnas.cli.screens.console import bar, say, say_each
from kdnas.cli.screens.interrupt import Interrupt, interruptible
from kdnas.cli.screens.preparing import prepare_on_screen
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_json
from kdnas.errors import (
    ArchitectureError,
    CancelledError,
    ConflictError,
    SpecError,
    TrainingError,
)
from kdnas.settings import Settings

if TYPE_CHECKING:
    from api.distillations.run import DistillationOutcome
    from kdnas.db.engine import Database
    from kdnas.db.records import DistillationRecord
    from kdnas.distill.full import Distilled, FullProgress, HeldOutPoint
    from kdnas.specs.distillation import DistillationSpec


def full_distill(
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch", help="layers,heads,hidden,intermediate,activation: 4,12,576,768,gelu."
        ),
        At("architecture"),
    ] = None,
    teacher: common.Teacher = None,
    corpus: common.Corpus = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    config: common.Config = None,
    objective: common.Objective = None,
    mapping: common.Mapping = None,
    last_weight: common.LastWeight = None,
    relations: common.Relations = None,
    relation_heads: common.RelationHeads = None,
    teacher_layer: common.TeacherLayer = None,
    orthogonal: common.Orthogonal = False,
    temperature: common.Temperature = None,
    fit_lm_head: common.FitLMHead = None,
    init: common.Init = None,
    init_from: Annotated[
        str | None,
        typer.Option(help="Begin with the weights of this student, distilled before."),
        At("student.init_from"),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Optimiser steps; instead of epochs. 0 writes the student as it starts, "
            "undistilled."
        ),
        At("training.steps"),
    ] = None,
    epochs: Annotated[common.Epochs, At("training.epochs")] = None,
    batch_size: Annotated[common.BatchSize, At("training.batch_size")] = None,
    learning_rate: Annotated[common.LearningRate, At("training.learning_rate")] = None,
    warmup_fraction: Annotated[common.WarmupFraction, At("training.warmup_fraction")] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between checkpoints and held-out readings.  [default: a tenth of all "
            "steps, at most 200]"
        ),
        At("training.checkpoint_every"),
    ] = None,
    dtype: Annotated[common.Dtype, At("training.dtype")] = None,
    device: Annotated[common.Device, At("training.device")] = None,
    threads: Annotated[common.Threads, At("training.threads")] = None,
    num_workers: Annotated[
        int | None,
        typer.Option(help="Data-parallel workers; they share each batch."),
        At("training.num_workers"),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster."), At("training.address")
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(help="Parts that a worker cuts its batches into, to save memory."),
        At("training.accumulate"),
    ] = None,
    compile_student: Annotated[
        bool,
        typer.Option("--compile", help="Run the student through torch.compile."),
        At("training.compile"),
    ] = False,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            help="Folder or fsspec URL for checkpoints.  [default: under KDNAS_HOME; on a Ray "
            "cluster in KDNAS_STORE]"
        ),
        At("training.checkpoints"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the start and the batches."), At("training.seed")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Empty or new folder.  [default: students/ID under KDNAS_HOME]"),
        At("output", str),
    ] = None,
    name: common.Name = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID|NAME", help="Go on with a stored distillation.")
    ] = None,
    push_to_hub: common.PushToHub = None,
    private: common.Private = False,
    as_json: common.Json = False,
) -> None:
    """Distil one architecture into a model folder.

    On the whole corpus, into a folder that transformers loads.

    Teacher, corpus and objective come from the options, else the environment, else kdnas.yaml in
    the working folder, else the preset; the first lines say which.
    """
    given = locals()
    if resume is not None:
        allowed = {"resume", "push_to_hub", "private", "as_json"}
        refuse_with_resume(full_distill, given, allowed)
    check_push_options(push_to_hub, private)
    if resume is not None:
        folder = resume_distillation(resume, as_json)
    else:
        _refuse_two_starts(init, init_from)
        folder = _start(request_of(full_distill, given), preset, config, as_json)
    if push_to_hub is not None:
        say(f"hub        {push(folder, push_to_hub, private)}")


def _refuse_two_starts(init: str | None, init_from: str | None) -> None:
    """Refuse two starts at once, of which only one could count."""
    if init is not None and init_from is not None:
        raise SpecError(
            f"--init-from {init_from} has its own weights to begin with, so that --init {init} "
            "would count for nothing; leave one of them out"
        )


def _start(values: dict[str, Any], preset: str | None, config: Path | None, as_json: bool) -> Path:
    from kdnas.specs.distillation import DistillationSpec

    inputs = gather(
        "distillation", values, Settings.from_environment(), preset=preset, config=config
    )
    if "architecture" not in inputs.data:
        raise ArchitectureError("no architecture was given; add --arch 4,12,576,768,gelu")
    spec = DistillationSpec.read(inputs.data, "full-distill")
    say_each(inputs.lines())
    say(
        f"output     {spec.output}  ({inputs.origins['output']})"
        if spec.output
        else "output     students/ID under KDNAS_HOME  (default; change it with --output)"
    )
    return start(spec, as_json)


def start(spec: DistillationSpec, as_json: bool) -> Path:
    """Prepare a distillation, store it and run it, on the screen.

    Returns:
        The student's folder.

    Raises:
        KdnasError: it cannot be made, or failed.
        typer.Exit: 130 if it was interrupted.
    """
    from api.distillations.prepare import prepare_distillation
    from api.distillations.run import create_distillation
    from api.jobs.files import output_folder

    with stored() as (database, settings):
        prepared = prepare_on_screen(prepare_distillation, spec, settings)
        record = create_distillation(prepared, database)
        say(f"student    goes to {output_folder(settings, prepared.spec, record.id)}")
        return run_and_report(record, database, settings, as_json)


def resume_distillation(reference: str, as_json: bool) -> Path:
    """Go on with a stored distillation, on the screen.

    Returns:
        The student's folder.

    Raises:
        NotFoundError: there is no such distillation.
        ConflictError: it was cancelled.
        KdnasError: it failed.
    """
    from api.jobs.files import checkpoints_of, remove_run_files
    from kdnas.db.repository import distillations
    from kdnas.specs.distillation import DistillationSpec

    with stored() as (database, settings):
        with database.read() as session:
            record = distillations.get_distillation(session, reference)
        say(f"resuming   {record.name}  (id {record.id}, {record.status}), spec as stored")
        if record.status == "cancelled":
            raise ConflictError(
                f"distillation {record.name!r} was cancelled and its checkpoints are removed; "
                "start a new one with kdnas full-distill"
            )
        spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
        if record.status == "succeeded":
            remove_run_files(spec, settings, record.id)  # a kill may have left them
            say(f"it is finished; the student is in {record.output_path}")
            if as_json:
                print_json(distillation_json(record))
            return Path(record.output_path or "")
        if record.step and not checkpoints_of(spec, settings, record.id).steps():
            say(f"no checkpoint is left of its {record.step} steps: training begins again")
        return run_and_report(record, database, settings, as_json)


def run_and_report(
    record: DistillationRecord, database: Database, settings: Settings, as_json: bool
) -> Path:
    """Run a stored distillation on the screen and say where the student is.

    Returns:
        The student's folder.

    Raises:
        KdnasError: the distillation failed, or somebody cancelled it.
        typer.Exit: 130 if it was interrupted.
    """
    way_on = f"kdnas full-distill --resume {record.name}"
    hopeless = (CancelledError, TrainingError)  # the second would come to the same end again
    stopping = interruptible("the distillation", (database, settings), way_on, hopeless)
    with stopping as interrupt:
        outcome = distil_on_screen(record, database, settings, interrupt)
    if as_json:
        print_json(distillation_json(outcome.record))
    if outcome.record.status != "succeeded" or outcome.distilled is None:
        step = outcome.distilled.steps if outcome.distilled else outcome.record.step
        name = outcome.record.name  # it may have been renamed
        say(f"paused at step {step}; go on with: kdnas full-distill --resume {name}")
        raise typer.Exit(130)
    say_student(outcome.record, outcome.output, outcome.distilled)
    return outcome.output


def distil_on_screen(
    record: DistillationRecord, database: Database, settings: Settings, interrupt: Interrupt
) -> DistillationOutcome:
    """Run a stored distillation with its readings and a bar.

    Raises:
        KdnasError: the distillation failed, or somebody cancelled it.
    """
    from api.distillations.run import run_stored_distillation

    say(f"distilling {record.architecture} as {record.name}  (id {record.id})")
    with bar("distilling", unit="steps") as shown:

        def tell(progress: FullProgress) -> None:
            if progress.held_out is not None:
                say(reading_line(progress, progress.held_out))
            note = f"loss {progress.loss:.4f}, {progress.tokens_per_second:.0f} tokens/s"
            shown.at(progress.step, progress.total_steps, note if progress.step else "")

        return run_stored_distillation(record.id, database, settings, tell, interrupt)


def reading_line(progress: FullProgress, reading: HeldOutPoint) -> str:
    """Return a held-out reading in a line; before the first step there is nothing else to tell."""
    losses = reading.losses
    held_out = f"held-out relative {losses.relative:.4f}  output {losses.output:.4f}"
    if reading.step == 0:
        return f"  step {0:6}  {held_out}"
    return (
        f"  step {reading.step:6}  loss {progress.loss:.4f}  {held_out}  "
        f"{progress.tokens_per_second:.0f} tokens/s"
    )


def say_student(record: DistillationRecord, output: Path, distilled: Distilled) -> None:
    """Say where a student is, and how good."""
    from api.inputs.results import learned_nothing

    say(f"student    {output}")
    say(f"           {worth(distilled)}; load it with AutoModel.from_pretrained")
    if (doubt := learned_nothing(record)) is not None:
        say(f"warning: {record.architecture} {doubt}")


def worth(distilled: Distilled) -> str:
    """Return how good a student is, and whether that is its distillation's."""
    best = distilled.best
    loss = f"relative loss {best.losses.relative:.4f}"
    if distilled.undistilled:
        return f"{loss} as it starts, undistilled"
    if best.step == 0:
        return (
            f"{loss} as it starts, which no later reading was better than: distillation won "
            "nothing, a lower --learning-rate or more --steps may"
        )
    return f"{loss} at step {best.step}, the best one read"


def distillation_json(record: DistillationRecord) -> dict[str, Any]:
    """Return what ``--json`` prints of a distillation."""
    return {
        "id": record.id,
        "name": record.name,
        "architecture": str(record.architecture),
        "status": record.status,
        "done": record.step,
        "total": record.total_steps,
        "losses": dict(record.metrics),
        "output": record.output_path,
        "error": record.error,
    }

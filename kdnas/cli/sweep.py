"""``kdnas sweep``: read or train every state of a space, or go on with that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import At, refuse_with_resume, request_of
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.screens.interrupt import exit_unless_done, interruptible
from kdnas.cli.screens.preparing import prepare_on_screen
from kdnas.cli.screens.sweep import SweepScreen, sweep_lines
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_answer, print_lines
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.records import JobRecord


def sweep(
    teacher: common.Teacher = None,
    corpus: common.Corpus = None,
    text_column: common.TextColumn = None,
    language_column: common.LanguageColumn = None,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    config: common.Config = None,
    space: common.Space = None,
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
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N,N",
            help="Read losses after these steps, such as 0,60; the last ends each training. 0 "
            "alone trains nothing.  [default: 0]",
        ),
        At("steps", common.listed),
    ] = None,
    states: Annotated[
        int | None, typer.Option(help="Draw so many states.  [default: all]"), At("states")
    ] = None,
    draw_seed: Annotated[
        int | None, typer.Option(help="Which states are drawn."), At("draw_seed")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="Of the trainings; each trains every state.  [default: 0]"
        ),
        At("seeds", common.listed),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A table: leave out states of which it has all that is asked.",
        ),
        At("without"),
    ] = None,
    batch_size: Annotated[common.BatchSize, At("proxy.batch_size")] = None,
    learning_rate: Annotated[common.LearningRate, At("proxy.learning_rate")] = None,
    proxy_fraction: common.ProxyFraction = None,
    dtype: Annotated[common.Dtype, At("proxy.dtype")] = None,
    num_workers: common.NumWorkers = None,
    threads: Annotated[common.Threads, At("backend.threads")] = None,
    group_size: common.GroupSize = None,
    backend: common.Backend = None,
    device: Annotated[common.Device, At("backend.device")] = None,
    ray_address: common.RayAddress = None,
    name: common.Name = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID|NAME", help="Go on with a stored sweep; try again the states that failed."
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Read or train every state of a space, without a search.

    What it finds is the table of a benchmark that needs no training (`kdnas tabular`), and whole
    trainings are known to searches of the same settings. Ctrl-C ends in good order; `--resume`
    goes on. States that fail are left out; `--resume` tries them again, also at the end.
    """
    given = locals()
    if resume is not None:
        refuse_with_resume(sweep, given, {"resume", "as_json"})
        _resume(resume, as_json)
    else:
        _start(request_of(sweep, given), preset, config, as_json)


def _start(values: dict[str, Any], preset: str | None, config: Path | None, as_json: bool) -> None:
    from api.sweeps.run import create_sweep, prepare_sweep
    from kdnas.specs.sweep import SweepSpec
    from kdnas.tabular.files import named_table

    inputs = gather("sweep", values, Settings.from_environment(), preset=preset, config=config)
    spec = SweepSpec.read(inputs.data, "sweep")
    if spec.without is not None:
        named_table(spec.without)  # one that cannot be read is told before text is tokenised
    say_each(inputs.lines())
    with stored() as (database, settings):
        record = create_sweep(prepare_on_screen(prepare_sweep, spec, settings), database)
        say(f"sweep      {record.name}  (id {record.id})")
        _run_and_report(record, database, settings, as_json)


def _resume(reference: str, as_json: bool) -> None:
    from kdnas.db.queue.transitions import resume_here
    from kdnas.db.repository import sweeps

    with stored() as (database, settings):
        with database.write() as session:
            record = sweeps.get_sweep(session, reference)
            resume_here(session, record.id)
            record = sweeps.get_sweep(session, record.id)
        say(f"sweep      {record.name}  (id {record.id}, {record.status}), spec as stored")
        _run_and_report(record, database, settings, as_json)


def _run_and_report(
    record: JobRecord, database: Database, settings: Settings, as_json: bool
) -> None:
    """Run a stored sweep on the screen and print its result; a finished one is only printed.

    Raises:
        KdnasError: the sweep failed.
        typer.Exit: 130 if it was interrupted.
    """
    from api.jobs.reading import read_job
    from api.sweeps.kind import KIND
    from api.sweeps.run import run_stored_sweep

    status, way_on = record.status, f"kdnas sweep --resume {record.name}"
    if status != "succeeded":
        again = None if status == "cancelled" else way_on
        stopping = interruptible("the sweep", (database, settings), again, trains_students=True)
        with stopping as interrupt, SweepScreen() as screen:
            status = run_stored_sweep(
                record.id, database, settings, screen.watchers, interrupt, interrupt.at_once
            )
    with database.read() as session:
        found = read_job(session, record.id, KIND)
    if status == "paused":
        say(f"paused; go on with: {way_on}")
    if as_json:
        print_answer(found)
    else:
        print_lines(sweep_lines(found))
    exit_unless_done(status)

"""``kdnas launch``: search, distil what was chosen, score all of it, and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.outputs import output_folder
from kdnas.cli.options.places import At, refuse_with_resume, request_of
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.screens.pipeline import (
    most_students,
    most_task_distillations,
    run_and_report,
    say_plan,
)
from kdnas.cli.screens.preparing import prepare_on_screen, read_data_on_screen
from kdnas.cli.screens.search import say_goal, show_plan
from kdnas.cli.stored import stored
from kdnas.cli.tables.answers import print_json
from kdnas.errors import SpecError
from kdnas.settings import Settings

if TYPE_CHECKING:
    from api.searches.run import PreparedSearch
    from kdnas.db.engine import Database
    from kdnas.db.records import PipelineRecord
    from kdnas.specs.pipeline import PipelineSpec

STUDENTS = "students"
"""Folder below ``--output`` that gets a folder for each student."""


def _students_in(output: Path) -> str:
    return str(output / STUDENTS)


def launch(
    teacher: Annotated[common.Teacher, At("search.teacher.ref")] = None,
    corpus: Annotated[common.Corpus, At("search.corpus.source")] = None,
    max_length: Annotated[common.MaxLength, At("search.corpus.max_length")] = None,
    preset: common.Preset = None,
    config: common.Config = None,
    objective: Annotated[common.Objective, At("search.objective.name")] = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Episodes of the search, M."),
        At("search.controller.episodes"),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(help="Candidates of an episode, N."),
        At("search.controller.candidates"),
    ] = None,
    strategy: Annotated[common.Strategy, At("search.controller.strategy.name")] = None,
    strategy_option: Annotated[
        common.StrategyOption, At("search.controller.strategy", common.strategy_options)
    ] = None,
    goal: Annotated[common.Goal, At("search.goal")] = None,
    max_latency_ratio: Annotated[
        common.MaxLatencyRatio, At("search.limits.max_latency_ratio")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(help="Distil so many students of the highest reward."),
        At("choose.top"),
    ] = None,
    latency_budgets: Annotated[
        str | None,
        typer.Option(
            metavar="MS,MS…", help="Instead of --top: the lowest loss under each of these, 6,9,12."
        ),
        At("choose.latency_budgets_ms", common.listed),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Optimiser steps of each full distillation."),
        At("distillation.training.steps"),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(help="glue, xnli, squad, squad2, xquad, tydiqa, mlqa, ner or sts."),
        At("evaluation.suite", str.lower),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Tasks of the suite, with commas or repeated."),
        At("evaluation.tasks", common.names_in),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the tasks' files as they are published.  [default: the data sets "
            "of the Hugging Face hub]"
        ),
        At("evaluation.data_dir", str),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Fine-tunings of each task."), At("evaluation.seeds")
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="At most this many optimiser steps a fine-tuning."),
        At("evaluation.max_steps"),
    ] = None,
    task_distill: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Distil what was chosen once more for each task: universal-kd-il, vanilla-kd, "
            "pkd, alp-kd or another of `kdnas task-distill`; 20 passes on the teacher and 10 on "
            "the labels, as published, unless --max-steps or the config's task_distill says less.",
        ),
        At("task_distill.method"),
    ] = None,
    name: common.Name = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report and the students.  [default: students under KDNAS_HOME, "
            "the report on the screen]"
        ),
        At("distillation.output", _students_in),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID|NAME", help="Go on with a stored pipeline.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and what it takes.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Search, distil what was chosen and some baselines, score it all, and report.

    From a teacher and some text to a table of scores; with `--task-distill` also to a student for
    each task. Everything is stored as it comes; Ctrl-C
    ends in good order and `--resume` goes on, also after a crash. What else a search, a
    distillation or an evaluation takes goes into `--config`; see `kdnas schema pipeline`.
    """
    given = locals()
    if resume is not None:
        refuse_with_resume(launch, given, {"resume", "output", "as_json"})
        _resume(resume, output, as_json)
        return
    if top is not None and latency_budgets is not None:
        raise SpecError(
            f"--top {top} and --latency-budgets {latency_budgets} are two ways; give one"
        )
    with output_folder(output):
        _start(request_of(launch, given), preset, config, output, dry_run, as_json)


def _start(
    values: dict[str, Any],
    preset: str | None,
    config: Path | None,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    from api.pipelines.advance import begin_pipeline
    from api.pipelines.request import checked_pipeline
    from api.searches.run import prepare_search
    from kdnas.db.models import Pipeline
    from kdnas.db.repository import names
    from kdnas.specs.pipeline import PipelineSpec

    inputs = gather("pipeline", values, Settings.from_environment(), preset=preset, config=config)
    spec = checked_pipeline(PipelineSpec.read(inputs.data, "launch"))
    say_each(inputs.lines())
    say_goal(spec.search)
    say_plan(spec)
    with stored() as (database, settings):
        if spec.name is not None and not dry_run:  # better said before the work than after it
            with database.read() as session:
                names.refuse_taken_name(session, Pipeline, spec.name)
        prepared = prepare_on_screen(prepare_search, spec.search, settings)
        _read_data(spec)
        if dry_run:
            _show_plan(spec, prepared, database, as_json)
            return
        spec = spec.model_copy(update={"search": prepared.spec})
        with database.write() as session:
            record = begin_pipeline(session, spec, "cli")
        say(f"pipeline   {record.name}  (id {record.id})")
        run_and_report(record, database, settings, output, as_json)


def _resume(reference: str, output: Path | None, as_json: bool) -> None:
    from kdnas.db.repository import pipelines

    with stored() as (database, settings):
        with database.read() as session:
            record = pipelines.get_pipeline(session, reference)
        say(f"pipeline   {record.name}  (id {record.id}, {record.status}), spec as stored")
        output = output or _first_output(record)
        with output_folder(output):
            run_and_report(record, database, settings, output, as_json)


def _first_output(record: PipelineRecord) -> Path | None:
    """The ``--output`` of a pipeline's launch: its report belongs beside its students."""
    from kdnas.specs.pipeline import PipelineSpec

    students = PipelineSpec.model_validate(record.spec).distillation.output
    if record.owner_kind != "cli" or students is None or Path(students).name != STUDENTS:
        return None
    return Path(students).parent


def _read_data(spec: PipelineSpec) -> None:
    """Read the data of the evaluation and the teacher once, and say what is there.

    Better that something is amiss before hours of work than after them.
    """
    from kdnas.specs.parts import ModelSpec

    teacher = spec.search.teacher
    request = spec.evaluation_of(ModelSpec(ref=teacher.ref, revision=teacher.revision))
    for planned in read_data_on_screen(request).tasks:
        split = "" if planned.official_split else "; not the official split"
        say(
            f"task       {planned.task.name}: {planned.train_examples} to learn from, "
            f"{sum(planned.evaluation_examples.values())} to be scored on{split}"
        )


def _show_plan(
    spec: PipelineSpec, prepared: PreparedSearch, database: Database, as_json: bool
) -> None:
    from api.searches.plan import plan_search

    if not as_json:
        show_plan(prepared, database, as_json=False)
        return
    students = most_students(spec)
    models = students * (1 + spec.baselines.undistilled)
    models += spec.evaluation.teacher + len(spec.baselines.variants)
    if spec.baselines.smallest_cuts:
        models += min(students, prepared.pinned.teacher.shape.layers - 1)
    print_json(
        {
            "search": plan_search(prepared, database),
            "num_students": students,
            "num_evaluations": models * len(spec.evaluation.tasks) * len(spec.evaluation.seeds),
            "num_task_distillations": most_task_distillations(spec),
        }
    )

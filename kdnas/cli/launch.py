"""``kdnas launch``: search, distil what was chosen, score all of it, and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from api.searches.run import PreparedSearch
    from kdnas.db.engine import Database
    from kdnas.db.records import PipelineRecord
    from kdnas.settings import Settings
    from kdnas.specs.pipeline import PipelineSpec

STUDENTS = "students"
"""Folder below ``--output`` that gets a folder for each student."""


def launch(
    teacher: common.Teacher = None,
    corpus: common.Corpus = None,
    max_length: common.MaxLength = None,
    preset: common.Preset = None,
    config: common.Config = None,
    objective: common.Objective = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes of the search, M.")] = None,
    candidates: Annotated[int | None, typer.Option(help="Candidates of an episode, N.")] = None,
    top: Annotated[
        int | None, typer.Option(help="Distil so many students of the highest reward.")
    ] = None,
    latency_budgets: Annotated[
        str | None,
        typer.Option(
            metavar="MS,MS…", help="Instead of --top: the lowest loss under each of these, 6,9,12."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimiser steps of each full distillation.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="glue, xnli, squad, squad2, xquad, tydiqa, mlqa, ner or sts.")
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Tasks of the suite, with commas or repeated.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the tasks' files as they are published.  [default: the data sets "
            "of the Hugging Face hub]"
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Fine-tunings of each task.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="At most this many optimiser steps a fine-tuning.")
    ] = None,
    name: common.Name = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report and the students.  [default: students under KDNAS_HOME, "
            "the report on the screen]"
        ),
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

    From a teacher and some text to a table of scores. Everything is stored as it comes; Ctrl-C
    ends in good order and `--resume` goes on, also after a crash. What else a search, a
    distillation or an evaluation takes goes into `--config`; see `kdnas schema pipeline`.
    """
    from kdnas.cli.options.inputs import nested, refuse_with_resume
    from kdnas.settings import Settings

    names = [part.strip() for text in tasks or [] for part in text.split(",") if part.strip()]
    values: dict[str, Any] = {
        "name": name,
        "search.teacher.ref": teacher,
        "search.corpus.source": corpus,
        "search.corpus.max_length": max_length,
        "search.objective.name": objective,
        "search.controller.episodes": episodes,
        "search.controller.candidates": candidates,
        "choose": _choice(top, latency_budgets),
        "distillation.training.steps": steps,
        "distillation.output": None if output is None else str(output / STUDENTS),
        "evaluation.suite": None if suite is None else suite.lower(),
        "evaluation.tasks": names,
        "evaluation.data_dir": str(data_dir) if data_dir else None,
        "evaluation.seeds": seeds,
        "evaluation.max_steps": max_steps,
    }
    settings = Settings.from_environment()
    if resume is not None:
        others = {"--preset": preset, "--config": config, "--dry-run": dry_run or None}
        given = {_OPTIONS.get(path, path): value for path, value in values.items()}
        refuse_with_resume({**given, **others, "distillation.output": None})
        _resume(resume, settings, output, as_json)
        return
    if output is not None:
        check_output(output)
    _start(nested(values), preset, config, settings, output, dry_run, as_json)


_OPTIONS = {
    "search.teacher.ref": "--teacher",
    "search.corpus.source": "--corpus",
    "search.objective.name": "--objective",
    "choose": "--top or --latency-budgets",
}
"""Paths of the spec whose option does not follow from their name."""


def _choice(top: int | None, budgets: str | None) -> dict[str, Any] | None:
    """Return what the options say of the choice; the spec checks it."""
    from kdnas.errors import SpecError

    if top is None and budgets is None:
        return None
    if budgets is None:
        return {"top": top}
    if top is not None:
        raise SpecError(f"--top {top} and --latency-budgets {budgets} are two ways; give one")
    return {"latency_budgets_ms": [part.strip() for part in budgets.split(",")]}


def _start(
    values: dict[str, Any],
    preset: str | None,
    config: Path | None,
    settings: Settings,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    from api.pipelines.advance import begin_pipeline
    from api.pipelines.request import checked_pipeline
    from api.searches.run import prepare_search
    from kdnas.cli.corpus import corpus_bar
    from kdnas.cli.options.inputs import gather
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.pipeline import run_and_report, say_plan
    from kdnas.cli.screens.preparing import chosen_layer_lines, preparing_bar
    from kdnas.db.migrate import open_database
    from kdnas.db.models import Pipeline
    from kdnas.db.repository import names
    from kdnas.specs.pipeline import PipelineSpec

    inputs = gather("pipeline", values, settings, preset=preset, config=config)
    spec = checked_pipeline(PipelineSpec.read(inputs.data, "launch"))
    for line in inputs.lines():
        say(line)
    say_plan(spec)
    with open_database(settings) as database:
        if spec.name is not None and not dry_run:  # better said before the work than after it
            with database.read() as session:
                names.refuse_taken_name(session, Pipeline, spec.name)
        with corpus_bar() as on_corpus, preparing_bar() as on_preparing:
            prepared = prepare_search(spec.search, settings, on_corpus, on_preparing)
        _read_data(spec)
        for line in chosen_layer_lines(prepared.spec.objective):
            say(line)
        for warning in prepared.warnings:
            say(f"warning: {warning}")
        if dry_run:
            _show_plan(spec, prepared, database, as_json)
            return
        spec = spec.model_copy(update={"search": prepared.spec})
        with database.write() as session:
            record = begin_pipeline(session, spec, "cli")
        say(f"pipeline   {record.name}  (id {record.id})")
        run_and_report(record, database, settings, output, as_json)


def _resume(reference: str, settings: Settings, output: Path | None, as_json: bool) -> None:
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.pipeline import run_and_report
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import pipelines

    with open_database(settings) as database:
        with database.read() as session:
            record = pipelines.get_pipeline(session, reference)
        say(f"pipeline   {record.name}  (id {record.id}, {record.status}), spec as stored")
        output = output or _first_output(record)
        if output is not None:
            check_output(output)
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
    from api.evaluations.prepare import prepare_evaluation
    from kdnas.cli.screens.console import bar, say
    from kdnas.specs.parts import ModelSpec

    teacher = spec.search.teacher
    request = spec.evaluation_of(ModelSpec(ref=teacher.ref, revision=teacher.revision))
    with bar("reading data", unit="tasks") as reading:
        done: list[str] = []

        def on_task(task: str) -> None:
            reading.at(len(done), note=task)
            done.append(task)

        prepared = prepare_evaluation(request, on_task)
    for planned in prepared.tasks:
        split = "" if planned.official_split else "; not the official split"
        say(
            f"task       {planned.task.name}: {planned.train_examples} to learn from, "
            f"{sum(planned.evaluation_examples.values())} to be scored on{split}"
        )


def _show_plan(
    spec: PipelineSpec, prepared: PreparedSearch, database: Database, as_json: bool
) -> None:
    from api.searches.plan import plan_search
    from kdnas.cli.screens.pipeline import most_students
    from kdnas.cli.screens.plan import show_plan

    if not as_json:
        show_plan(prepared, database, as_json=False)
        return
    students = most_students(spec)
    models = students * (1 + spec.baselines.undistilled)
    models += spec.evaluation.teacher + len(spec.baselines.variants)
    if spec.baselines.smallest_cuts:
        models += min(students, prepared.pinned.teacher.shape.layers - 1)
    plan = {
        "search": plan_search(prepared, database),
        "num_students": students,
        "num_evaluations": models * len(spec.evaluation.tasks) * len(spec.evaluation.seeds),
    }
    typer.echo(json.dumps(plan))


def check_output(output: Path) -> None:
    """Make the folder for a report.

    Raises:
        ConflictError: it cannot be made.
    """
    from kdnas.errors import ConflictError

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConflictError(
            f"output folder {output} cannot be made ({error.strerror}); name another with --output"
        ) from None

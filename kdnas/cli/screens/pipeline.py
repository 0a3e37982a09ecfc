"""How a pipeline looks while it works, and its result."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdnas.cli.options.outputs import write_report
from kdnas.cli.screens.console import bar, say, say_each
from kdnas.cli.screens.interrupt import Interrupt, interruptible
from kdnas.cli.screens.search import SearchScreen, show_result
from kdnas.cli.tables.answers import print_lines
from kdnas.cli.tables.formats import as_text
from kdnas.errors import CancelledError, KdnasError, PluginError

if TYPE_CHECKING:
    from api.pipelines.run import Doers
    from kdnas.db.engine import Database
    from kdnas.db.records import (
        DistillationRecord,
        EvaluationRecord,
        PipelineRecord,
        TaskDistillationRecord,
    )
    from kdnas.evaluation.finetuning.training import FinetuneProgress
    from kdnas.records import SearchRecord
    from kdnas.settings import Settings
    from kdnas.specs.pipeline import PipelineSpec

REPORT_FILE = "report"


def say_plan(spec: PipelineSpec) -> None:
    """Say what a pipeline will do after its search."""
    way, scores = spec.choose, spec.evaluation
    chosen = (
        f"the top {way.top} by reward"
        if way.top is not None
        else "the best within "
        + ", ".join(f"{ms:g} ms" for ms in way.latency_budgets_ms)
        + ", ".join(f"{share:g} of the teacher's latency" for share in way.latency_budgets_ratio)
    )
    baselines = spec.baselines
    beside = {
        f"{len(baselines.proportions)} of the teacher's proportions": True,
        f"{baselines.random} at random": True,
        "each of all these undistilled": baselines.undistilled,
        f"{len(baselines.variants)} of the teacher itself, smaller": baselines.variants,
        "for each the smallest cut of the teacher that is not faster": baselines.smallest_cuts,
    }
    said = [words for words, wanted in beside.items() if wanted]
    training = spec.distillation.training
    length = f"{training.steps} steps" if training.steps else f"{training.epochs:g} epochs"
    say(f"students   {chosen}; beside them {', '.join(said)}; {length} each")
    seeds = "1 seed" if len(scores.seeds) == 1 else f"{len(scores.seeds)} seeds"
    limit = f", at most {scores.max_steps} steps each" if scores.max_steps else ""
    if scores.grid is not None:
        limit += ", rate and epochs of each model by a grid"
    models = "the teacher and every student" if scores.teacher else "every student"
    say(f"scores     {scores.suite}: {', '.join(scores.tasks)}; {seeds}{limit}; of {models}")
    if spec.task_distill is not None:
        from api.pipelines.second_step_report import second_step_setup

        say(f"then       {second_step_setup(spec)}; of what the search chose; {seeds}")


def most_students(spec: PipelineSpec) -> int:
    """Return how many students a pipeline distils unless some of them are the same."""
    return _most_chosen(spec) + len(spec.baselines.proportions) + spec.baselines.random


def most_task_distillations(spec: PipelineSpec) -> int:
    """Return for how many tasks students are distilled once more, unless some are the same."""
    if spec.task_distill is None:
        return 0
    from api.pipelines.second_step import tasks_of

    return _most_chosen(spec) * len(tasks_of(spec)[0])


def _most_chosen(spec: PipelineSpec) -> int:
    way = spec.choose
    return way.top or len(way.latency_budgets_ms) + len(way.latency_budgets_ratio)


def run_and_report(
    record: PipelineRecord,
    database: Database,
    settings: Settings,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run a stored pipeline on the screen and print its report; a finished one is only printed.

    Raises:
        KdnasError: it could not go on.
        typer.Exit: 130 if it rests, 1 if a part of it failed.
    """
    from api.pipelines.run import run_stored_pipeline

    way_on = f"kdnas launch --resume {record.name}"
    if record.status != "succeeded":
        with interruptible(
            "the pipeline", (database, settings), way_on, trains_students=True
        ) as interrupt:
            doers = _doers(record.id, database, settings, interrupt)
            record = run_stored_pipeline(record.id, database, doers, _say_failed, interrupt)
    show_pipeline(record.id, database, settings, output, as_json)
    way_on = f"kdnas launch --resume {record.name}"  # it may have been renamed
    if record.status == "paused":
        say(f"paused; go on with: {way_on}")
    if record.status == "failed":
        say(f"error: {record.error}")
        say(f"go on with: {way_on}")
    if record.status in {"failed", "cancelled"}:
        raise typer.Exit(1)
    if record.status != "succeeded":  # by a Ctrl-C, or from elsewhere
        raise typer.Exit(130)


def show_pipeline(
    pipeline_id: str,
    database: Database,
    settings: Settings,
    output: Path | None,
    as_json: bool,
    *,
    quiet: bool = False,
) -> None:
    """Print where a pipeline stands, and its report as soon as there are scores.

    Args:
        pipeline_id: the pipeline.
        database: where it is stored.
        settings: of this process.
        output: folder that gets the report as Markdown, CSV, LaTeX and JSON.
        as_json: print one object last on stdout, and the rest to stderr.
        quiet: print nothing of that, and write the report alone.
    """
    from api.jobs.reading import read_job
    from api.pipelines.kind import KIND
    from api.pipelines.report import build_pipeline_report, report_json
    from api.pipelines.report_formats import as_csv, as_latex, as_markdown

    row = database.ask(lambda session: read_job(session, pipeline_id, KIND))
    report = build_pipeline_report(database, settings, pipeline_id)
    plain, markdown = report_json(report), as_markdown(report)
    if not quiet:
        tell = say_each if as_json else print_lines
        tell([*_lines(row), *([f"\n{markdown}"] if row["num_evaluated"] else [])])
    if output is not None and row["num_evaluated"]:
        whole = json.dumps(plain, indent=2, default=datetime.isoformat) + "\n"
        texts = {"md": markdown, "csv": as_csv(report), "tex": as_latex(report), "json": whole}
        write_report(output, REPORT_FILE, texts)
        say(f"report     {output / REPORT_FILE}.md  (and .csv, .tex, .json)")
    if as_json:
        typer.echo(json.dumps({**row, "report": plain}, default=datetime.isoformat))


def _lines(row: Mapping[str, Any]) -> Sequence[str]:
    """Return where a pipeline stands, a line a member."""
    lines = [f"\npipeline {row['name']}: {row['status']}, stage {row['stage']}"]
    lines += [f"note: {note}" for note in row["notes"]]
    if not row["members"]:
        return [*lines, f"search {row['search_name']}: {row['search_status']}"]
    rows = [
        [
            " + ".join(dict.fromkeys(reason["role"] for reason in member["reasons"])),
            member["architecture"] or member["reasons"][0]["about"],
            _distilled(member["distillation"]),
            _scored(member["evaluations"]),
            _taught(member["task_distillations"]),
        ]
        for member in row["members"]
    ]
    header = ["role", "model", "distillation", "evaluations", "for tasks"]
    if not row["num_task_distillations"]:
        header, rows = header[:-1], [cells[:-1] for cells in rows]
    return [*lines, as_text(header, rows)]


def _distilled(made: Mapping[str, Any] | None) -> str:
    if made is None:
        return "-"
    losses = made["losses"]
    loss = f", relative loss {losses['relative']:.3f}" if losses else ""
    return f"{made['status']}{loss}"


def _scored(evaluations: Sequence[Mapping[str, Any]]) -> str:
    done = sum(one["status"] == "succeeded" for one in evaluations)
    failed = sum(one["status"] == "failed" for one in evaluations)
    if not evaluations:
        return "-"
    return f"{done} of {len(evaluations)}" + (f", {failed} failed" if failed else "")


def _taught(steps: Sequence[Mapping[str, Any]]) -> str:
    return (
        ", ".join(
            f"{step['task']} "
            + (
                step["status"]
                if step["score"] is None
                else f"{100 * step['score']:.1f} {step['metric']}"
            )
            for step in steps
        )
        or "-"
    )


def _doers(pipeline_id: str, database: Database, settings: Settings, interrupt: Interrupt) -> Doers:
    """Return what does each kind of part as the commands of their own do."""

    def search(record: SearchRecord) -> None:
        from api.searches.reading import search_summary
        from api.searches.run import run_stored_search

        say(f"\nsearch {record.name}  (id {record.id})")
        with SearchScreen(record.spec.get("goal", "reward")) as screen:
            run_stored_search(
                record.id,
                database,
                settings,
                screen.watchers,
                interrupt,
                at_once=interrupt.at_once,
            )
        show_result(search_summary(record.id, database), to_stderr=True)

    def distillation(record: DistillationRecord) -> None:
        from kdnas.cli.full_distill import distil_on_screen, say_student

        say()
        outcome = distil_on_screen(record, database, settings, interrupt)
        if outcome.record.status == "succeeded" and outcome.distilled is not None:
            say_student(outcome.record, outcome.output, outcome.distilled)

    evaluation = partial(_evaluate, pipeline_id, database, settings, interrupt)

    def for_task(record: TaskDistillationRecord) -> None:
        from api.task_distillations.run import run_stored_task_distillation
        from kdnas.cli.screens.task_distillation import TaskScreen

        say(f"\ndistilling {Path(record.student).name} for {record.task}  (id {record.id})")
        with TaskScreen() as screen:
            status = run_stored_task_distillation(
                record.id, database, settings, screen.watchers, interrupt
            )
        if status == "succeeded":
            say(f"student    {record.spec['output']}")

    return {
        "search": search,
        "distillation": distillation,
        "evaluation": evaluation,
        "task_distillation": for_task,
    }


def _say_failed(error: Exception) -> None:
    # Nobody foresaw it, or whoever wrote a plug-in did not: say where it happened.
    if not isinstance(error, KdnasError) or isinstance(error, PluginError):
        say("".join(traceback.format_exception(error)))
    what = "cancelled" if isinstance(error, CancelledError) else "failed"
    say(f"{what}: {error}; the pipeline goes on with the rest")


def _evaluate(
    pipeline_id: str,
    database: Database,
    settings: Settings,
    interrupt: Interrupt,
    record: EvaluationRecord,
) -> None:
    from api.evaluations.run import run_stored_evaluation
    from api.pipelines.story import member_name
    from kdnas.db.repository import evaluations, pipelines

    members = database.ask(lambda session: pipelines.list_members(session, pipeline_id))
    scored = next(member for member in members if member.id == record.pipeline_member_id)
    name = f"{member_name(scored)} on {record.task} with seed {record.seed}"
    with bar("evaluating", unit="") as shown:

        def tell(progress: FinetuneProgress) -> None:
            done = f"{progress.phase} {progress.done} of {progress.total}"
            shown.at(progress.done / max(1, progress.total), 1, f"{name}: {done}")

        run_stored_evaluation(record.id, database, settings, interrupt, tell)
    now = database.ask(lambda session: evaluations.get_evaluation(session, record.id))
    if now.status == "succeeded":
        say(f"evaluated {name}: {100 * now.metrics['main']:.1f}")

"""``kdnas pipelines``: what was launched, and what came of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdnas.cli.options import common
from kdnas.cli.options.outputs import output_folder
from kdnas.cli.screens.pipeline import show_pipeline
from kdnas.cli.stored import reading, stored
from kdnas.cli.tables.answers import print_answer
from kdnas.cli.tables.formats import as_text
from kdnas.errors import SpecError, unknown_name

if TYPE_CHECKING:
    from kdnas.db.models import Job

app = typer.Typer(help="List, show and cancel pipelines.", no_args_is_help=True)


@app.command("list")
def list_all(
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List pipelines, the newest first."""
    from api.jobs.reading import read_page
    from api.pipelines.kind import KIND

    with reading() as session:
        found = read_page(session, KIND.query(limit=limit), KIND).items
    if as_json:
        print_answer(found)
        return
    header = ["name", "status", "stage", "students", "evaluations", "created", "id"]
    rows = [
        [
            row["name"],
            row["status"],
            row["stage"],
            f"{row['num_distilled']} of {row['num_students']}",
            f"{row['num_evaluated']} of {row['num_evaluations']}",
            f"{row['created_at']:%Y-%m-%d %H:%M}",
            row["id"],
        ]
        for row in found
    ]
    typer.echo(as_text(header, rows) if rows else "no pipeline yet; start one with kdnas launch")


@app.command()
def show(
    pipeline: common.Reference,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the report: Markdown, CSV, LaTeX and JSON.")
    ] = None,
    as_json: common.JsonOfService = False,
) -> None:
    """Show where a pipeline stands and its report, as far as it goes.

    `--json` leaves the report to `kdnas pipelines report`.
    """
    from api.jobs.reading import read_job
    from api.pipelines.kind import KIND
    from kdnas.db.models import Job
    from kdnas.db.queue import leases
    from kdnas.db.repository import pipelines

    with output_folder(output), stored() as (database, settings):
        with database.read() as session:
            found = pipelines.get_pipeline(session, pipeline)
            holder = leases.holder(session, Job, found.id)
        if output is not None or not as_json:
            show_pipeline(found.id, database, settings, output, as_json=False, quiet=as_json)
        if as_json:
            with database.read() as session:
                print_answer(read_job(session, found.id, KIND))
            return
    if found.error:
        typer.echo(f"error: {found.error}")
    rests = found.owner_kind == "cli" and found.status in {"running", "paused", "failed"}
    if rests and holder is None:
        dead = "nobody works on it; " if found.status == "running" else ""
        typer.echo(f"{dead}go on with: kdnas launch --resume {found.name}")


@app.command()
def report(
    pipeline: common.Reference,
    output_format: Annotated[
        str, typer.Option("--format", help="md (Markdown), csv, tex (LaTeX) or json.")
    ] = "md",
) -> None:
    """Print which student to take and how sure that is, from what is there by now."""
    from api.pipelines.report import build_pipeline_report, report_json
    from api.pipelines.report_formats import as_csv, as_latex, as_markdown

    texts = {"md": as_markdown, "csv": as_csv, "tex": as_latex}
    if output_format not in {*texts, "json"}:
        raise SpecError(unknown_name("format", output_format, {*texts, "json"}))
    with stored() as (database, settings):
        found = build_pipeline_report(database, settings, pipeline)
    if output_format == "json":
        print_answer(report_json(found))
    else:
        typer.echo(texts[output_format](found).rstrip("\n"))


@app.command()
def cancel(pipeline: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Give a pipeline up for good, with all of its parts that are not over.

    What works on it stops within seconds; what has succeeded is kept.
    """
    from api.jobs.reading import read_job
    from api.pipelines.kind import KIND
    from kdnas.cli.screens import job_actions

    def said(found: Job, *_: object) -> str:
        return f"cancelled {found.name}; what had succeeded is kept"

    read = partial(read_job, kind=KIND)
    job_actions.act(pipeline, "cancel", as_json, table=KIND.table, read=read, said=said)

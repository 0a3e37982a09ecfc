"""``kdnas pipelines``: what was launched, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli.options import common

app = typer.Typer(help="List, show and cancel pipelines.", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]


@app.command("list")
def list_all(
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List pipelines, the newest first."""
    from api.jobs.reading import read_page
    from api.pipelines.kind import KIND
    from kdnas.cli.tables.answers import print_answer
    from kdnas.cli.tables.formats import as_text
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        found = read_page(session, KIND.query(limit=limit), KIND).items
    if as_json:
        print_answer(found)
        return
    if not found:
        typer.echo("no pipeline yet; start one with kdnas launch")
        return
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
    header = ["name", "status", "stage", "students", "evaluations", "created", "id"]
    typer.echo(as_text(header, rows))


@app.command()
def show(
    pipeline: Reference,
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
    from kdnas.cli.launch import check_output
    from kdnas.cli.screens.pipeline import show_pipeline
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.db.models import Job
    from kdnas.db.queue import leases
    from kdnas.db.repository import pipelines
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    if output is not None:
        check_output(output)
    with open_database(settings) as database:
        with database.read() as session:
            found = pipelines.get_pipeline(session, pipeline)
            holder = leases.holder(session, Job, found.id)
        if as_json:
            if output is not None:
                show_pipeline(found.id, database, settings, output, as_json=False, quiet=True)
            with database.read() as session:
                print_answer(read_job(session, found.id, KIND))
            return
        show_pipeline(found.id, database, settings, output, as_json=False)
    if found.error:
        typer.echo(f"error: {found.error}")
    if found.owner_kind == "cli" and found.status in {"running", "paused", "failed"}:
        dead = "nobody works on it; " if found.status == "running" else ""
        if holder is None:
            typer.echo(f"{dead}go on with: kdnas launch --resume {found.name}")


@app.command()
def report(
    pipeline: Reference,
    output_format: Annotated[
        str, typer.Option("--format", help="md (Markdown), csv, tex (LaTeX) or json.")
    ] = "md",
) -> None:
    """Print which student to take and how sure that is, from what is there by now."""
    from api.pipelines.report import build_pipeline_report, report_json
    from api.pipelines.report_formats import as_csv, as_latex, as_markdown
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.errors import SpecError, unknown_name
    from kdnas.settings import Settings

    texts = {"md": as_markdown, "csv": as_csv, "tex": as_latex}
    if output_format not in {*texts, "json"}:
        raise SpecError(unknown_name("format", output_format, {*texts, "json"}))
    settings = Settings.from_environment()
    with open_database(settings) as database:
        found = build_pipeline_report(database, settings, pipeline)
    if output_format == "json":
        print_answer(report_json(found))
    else:
        typer.echo(texts[output_format](found).rstrip("\n"))


@app.command()
def cancel(pipeline: Reference, as_json: common.JsonOfService = False) -> None:
    """Give a pipeline up for good, with all of its parts that are not over.

    What works on it stops within seconds; what has succeeded is kept.
    """
    from api.jobs.changes import cancel_job
    from api.jobs.reading import read_job
    from api.pipelines.kind import KIND
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import pipelines
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = pipelines.get_pipeline(session, pipeline)
        cancel_job(found.id, database, settings)
        if as_json:
            with database.read() as session:
                print_answer(read_job(session, found.id, KIND))
            return
    typer.echo(f"cancelled {found.name}; what had succeeded is kept")

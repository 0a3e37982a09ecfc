"""``kdnas pipelines``: what was launched, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli import options

app = typer.Typer(help="List, show and cancel pipelines.", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]


@app.command("list")
def list_all(
    limit: Annotated[int, typer.Option(min=1, max=500, help="The newest so many.")] = 20,
    as_json: options.Json = False,
) -> None:
    """List pipelines, the newest first."""
    from kdnas.cli.pipeline_screen import in_json
    from kdnas.cli.tables import as_text
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import pipeline_pages
    from kdnas.db.repository.pipeline_pages import PipelineFilter
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        found = pipeline_pages.list_pipeline_page(session, PipelineFilter(), limit=limit).items
    if as_json:
        typer.echo(json.dumps(found, default=in_json))
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
    as_json: options.Json = False,
) -> None:
    """Show where a pipeline stands and its report, as far as it goes."""
    from kdnas.cli.launch import check_output
    from kdnas.cli.pipeline_screen import show_pipeline
    from kdnas.db.migrate import open_database
    from kdnas.db.models import Job
    from kdnas.db.repository import leases, pipelines
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    if output is not None:
        check_output(output)
    with open_database(settings) as database:
        with database.read() as session:
            found = pipelines.get_pipeline(session, pipeline)
            holder = leases.holder(session, Job, found.id)
        show_pipeline(found.id, database, settings, output, as_json, quiet=as_json)
    if as_json:
        return
    if found.error:
        typer.echo(f"error: {found.error}")
    if found.owner_kind == "cli" and found.status in {"running", "paused", "failed"}:
        dead = "nobody works on it; " if found.status == "running" else ""
        if holder is None:
            typer.echo(f"{dead}go on with: kdnas launch --resume {found.name}")


@app.command()
def cancel(pipeline: Reference, as_json: options.Json = False) -> None:
    """Give a pipeline up for good, with all of its parts that are not over.

    What works on it stops within seconds; what has succeeded is kept.
    """
    from api.jobs.cancellation import cancel_job
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import pipelines
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = pipelines.get_pipeline(session, pipeline)
        cancel_job(found.id, database, settings)
        with database.read() as session:
            done = pipelines.get_pipeline(session, found.id)
    if as_json:
        typer.echo(json.dumps({"id": done.id, "name": done.name, "status": done.status}))
    else:
        typer.echo(f"cancelled {done.name}; what had succeeded is kept")

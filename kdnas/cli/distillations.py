"""``kdnas distillations``: what was distilled."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kdnas.cli import options

app = typer.Typer(help="List and show full distillations.", no_args_is_help=True)


@app.command("list")
def list_all(
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: options.Json = False,
) -> None:
    """List distillations, the newest first."""
    from kdnas.cli.full_distill import distillation_json
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        found = distillations.list_distillations(session, limit=limit)
    if as_json:
        typer.echo(json.dumps([distillation_json(record) for record in found]))
        return
    for record in found:
        loss = record.metrics.get("relative")
        shown = "" if loss is None else f"  relative {loss:.4f}"
        step = f"{record.step}/{record.total_steps or '?'}"
        typer.echo(
            f"{record.name:<24} {record.status:<10} {record.architecture!s:<24} {step:>12}{shown}"
        )
    if not found:
        typer.echo("no distillation yet; start one with kdnas full-distill --arch ...")


@app.command()
def show(
    distillation: Annotated[str, typer.Argument(metavar="ID|NAME")],
    as_json: options.Json = False,
) -> None:
    """Show one distillation."""
    from kdnas.cli.full_distill import distillation_json
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        record = distillations.get_distillation(session, distillation)
    if as_json:
        typer.echo(json.dumps({**distillation_json(record), "spec": dict(record.spec)}))
        return
    for key, value in distillation_json(record).items():
        typer.echo(f"{key:<16} {value}")

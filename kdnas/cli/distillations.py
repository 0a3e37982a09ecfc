"""``kdnas distillations``: what was distilled, going on with it, and giving it up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from kdnas.cli import options
from kdnas.cli.objective_help import ObjectiveCommand

if TYPE_CHECKING:
    from kdnas.records import SearchStatus

app = typer.Typer(help="List, show, resume and cancel full distillations.", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]


@app.command("list", cls=ObjectiveCommand)
def list_all(
    status: Annotated[
        str | None,
        typer.Option(help="Only queued, running, paused, cancelled, failed or succeeded ones."),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Only those of this objective: {names}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: options.Json = False,
) -> None:
    """List distillations, the newest first.

    The loss is the held-out relative one: that of the result, else the newest reading.
    """
    from kdnas.cli.distillation_screen import listed, overview_json
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    wanted = _known_status(status)
    _check_objective(objective)
    with open_database(Settings.from_environment()) as database, database.read() as session:
        records = distillations.list_distillations(
            session, status=wanted, objective=objective, limit=limit
        )
        found = distillations.overviews(session, records)
    if as_json:
        typer.echo(json.dumps([overview_json(seen) for seen in found]))
    elif found:
        typer.echo(listed(found))
    elif status or objective:
        typer.echo("no such distillation; kdnas distillations list shows all")
    else:
        typer.echo("no distillation yet; start one with kdnas full-distill --arch ...")


@app.command()
def show(distillation: Reference, as_json: options.Json = False) -> None:
    """Show one distillation: its request, its curve, its held-out losses, and how to go on.

    `--json` prints the whole request, curve and readings.
    """
    from kdnas.cli.distillation_screen import overview_json, reading_json, shown
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        record = distillations.get_distillation(session, distillation)
        (seen,) = distillations.overviews(session, [record])
        curve = distillations.distillation_curve(session, record.id)
        readings = distillations.distillation_readings(session, record.id)
    if not as_json:
        typer.echo(shown(seen, curve, readings))
        return
    whole = {
        **overview_json(seen),
        "spec": dict(record.spec),
        "curve": [
            {"step": point.step, "loss": point.loss, "learning_rate": point.learning_rate}
            for point in curve
        ],
        "held_out": [reading_json(reading) for reading in readings],
    }
    typer.echo(json.dumps(whole))


@app.command()
def resume(distillation: Reference, as_json: options.Json = False) -> None:
    """Go on with a distillation; the same as `kdnas full-distill --resume`."""
    from kdnas.cli.full_distill import resume_distillation
    from kdnas.settings import Settings

    resume_distillation(distillation, Settings.from_environment(), as_json)


@app.command()
def cancel(distillation: Reference, as_json: options.Json = False) -> None:
    """Give a distillation up for good; its checkpoints are removed.

    A running one stops within seconds, whichever process runs it.
    """
    from api.jobs.cancellation import cancel_job
    from kdnas.cli.full_distill import distillation_json
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = distillations.get_distillation(session, distillation)
        holder = cancel_job(found.id, database, settings)
        with database.read() as session:
            done = distillations.get_distillation(session, found.id)
    if as_json:
        typer.echo(json.dumps(distillation_json(done)))
        return
    if holder is None:
        typer.echo(f"cancelled {done.name}; its checkpoints are removed")
    else:
        typer.echo(
            f"cancelled {done.name}; process {holder.pid} on {holder.host}, which "
            "works on it, stops within seconds and removes its checkpoints"
        )


def _known_status(status: str | None) -> SearchStatus | None:
    from kdnas.errors import SpecError, unknown_name
    from kdnas.records import SearchStatus

    for known in get_args(SearchStatus):
        if status == known:
            return known  # type: ignore[no-any-return]
    if status is None:
        return None
    raise SpecError(unknown_name("status", status, get_args(SearchStatus)))


def _check_objective(objective: str | None) -> None:
    from kdnas.errors import SpecError, unknown_name
    from kdnas.specs.objective_registry import objective_names

    if objective is not None and objective not in objective_names():
        raise SpecError(unknown_name("objective", objective, objective_names()))

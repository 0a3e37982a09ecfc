"""``kdnas distillations``: what was distilled, going on with it, and giving it up."""

from __future__ import annotations

from typing import Annotated

import typer

from kdnas.cli.options import common
from kdnas.cli.options.objective_help import ObjectiveCommand

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
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List distillations, the newest first.

    The loss is the held-out relative one: that of the result, else the newest reading.
    """
    from kdnas.cli.options.choices import known_status
    from kdnas.cli.screens.distillation import listed
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    wanted = None if status is None else known_status(status)
    _check_objective(objective)
    with open_database(Settings.from_environment()) as database, database.read() as session:
        if as_json:
            from api.distillations.kind import KIND
            from api.distillations.schemas import DistillationQuery
            from api.jobs.reading import read_page
            from kdnas.cli.tables.answers import print_answer

            asked = [] if wanted is None else [wanted]
            query = DistillationQuery(status=asked, objective=objective, limit=limit)
            print_answer(read_page(session, query, KIND).items)
            return
        records = distillations.list_distillations(
            session, status=wanted, objective=objective, limit=limit
        )
        found = distillations.overviews(session, records)
    if found:
        typer.echo(listed(found))
    elif status or objective:
        typer.echo("no such distillation; kdnas distillations list shows all")
    else:
        typer.echo("no distillation yet; start one with kdnas full-distill --arch ...")


@app.command()
def show(distillation: Reference, as_json: common.JsonOfService = False) -> None:
    """Show one distillation: its request, its curve, its held-out losses, and how to go on."""
    from kdnas.cli.screens.distillation import shown
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        record = distillations.get_distillation(session, distillation)
        if as_json:
            from api.distillations.kind import KIND
            from api.jobs.reading import read_job
            from kdnas.cli.tables.answers import print_answer

            print_answer(read_job(session, record.id, KIND))
            return
        (seen,) = distillations.overviews(session, [record])
        curve = distillations.distillation_curve(session, record.id)
        readings = distillations.distillation_readings(session, record.id)
    typer.echo(shown(seen, curve, readings))


@app.command()
def losses(distillation: Reference) -> None:
    """Print the training curve and the held-out losses of a distillation, as JSON.

    It is what the service answers, with the most points that it gives.
    """
    from api.distillations.routes import MOST_POINTS, read_losses
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        print_answer(read_losses(session, distillation, MOST_POINTS))


@app.command()
def resume(distillation: Reference, as_json: common.Json = False) -> None:
    """Go on with a distillation; the same as `kdnas full-distill --resume`."""
    from kdnas.cli.full_distill import resume_distillation
    from kdnas.settings import Settings

    resume_distillation(distillation, Settings.from_environment(), as_json)


@app.command()
def cancel(distillation: Reference, as_json: common.JsonOfService = False) -> None:
    """Give a distillation up for good; its checkpoints are removed.

    A running one stops within seconds, whichever process runs it.
    """
    from api.distillations.kind import KIND
    from api.jobs.changes import cancel_job
    from api.jobs.reading import read_job
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import distillations
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = distillations.get_distillation(session, distillation)
        holder = cancel_job(found.id, database, settings)
        if as_json:
            with database.read() as session:
                print_answer(read_job(session, found.id, KIND))
            return
    if holder is None:
        typer.echo(f"cancelled {found.name}; its checkpoints are removed")
    else:
        typer.echo(
            f"cancelled {found.name}; process {holder.pid} on {holder.host}, which "
            "works on it, stops within seconds and removes its checkpoints"
        )


def _check_objective(objective: str | None) -> None:
    from kdnas.errors import SpecError, unknown_name
    from kdnas.specs.objective_registry import objective_names

    if objective is not None and objective not in objective_names():
        raise SpecError(unknown_name("objective", objective, objective_names()))

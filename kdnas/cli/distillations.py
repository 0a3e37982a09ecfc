"""``kdnas distillations``: what was distilled, going on with it, and giving it up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.full_distill import resume_distillation
from kdnas.cli.options import common
from kdnas.cli.options.choices import known_status
from kdnas.cli.options.objective_help import ObjectiveCommand
from kdnas.cli.screens.distillation import listed, shown
from kdnas.cli.stored import reading
from kdnas.cli.tables.answers import print_answer
from kdnas.errors import SpecError, unknown_name

if TYPE_CHECKING:
    from kdnas.db.models import Job

app = typer.Typer(help="List, show, resume and cancel full distillations.", no_args_is_help=True)


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
    from api.distillations.kind import KIND
    from api.distillations.schemas import DistillationQuery
    from api.jobs.reading import read_page
    from kdnas.specs.objective_registry import objective_names

    wanted = [] if status is None else [known_status(status)]
    if objective is not None and objective not in objective_names():
        raise SpecError(unknown_name("objective", objective, objective_names()))
    query = DistillationQuery(status=wanted, objective=objective, limit=limit)
    with reading() as session:
        found = read_page(session, query, KIND).items
    if as_json:
        print_answer(found)
        return
    nothing = "no distillation yet; start one with kdnas full-distill --arch ..."
    if status or objective:
        nothing = "no such distillation; kdnas distillations list shows all"
    typer.echo(listed(found) if found else nothing)


@app.command()
def show(distillation: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Show one distillation: its request, its curve, its held-out losses, and how to go on."""
    from api.distillations.kind import KIND
    from api.inputs.results import learned_nothing
    from api.jobs.reading import read_job
    from kdnas.db.repository import distillations

    with reading() as session:
        found = read_job(session, distillation, KIND)
        if as_json:
            print_answer(found)
            return
        curve = distillations.distillation_curve(session, found["id"])
        readings = distillations.distillation_readings(session, found["id"])
        doubt = learned_nothing(distillations.get_distillation(session, found["id"]))
    typer.echo(shown(found, curve, readings, doubt))


@app.command()
def losses(distillation: common.Reference) -> None:
    """Print the training curve and the held-out losses of a distillation, as JSON.

    It is what the service answers, with the most points that it gives.
    """
    from api.distillations.routes import MOST_POINTS, read_losses

    with reading() as session:
        print_answer(read_losses(session, distillation, MOST_POINTS))


@app.command()
def resume(distillation: common.Reference, as_json: common.Json = False) -> None:
    """Go on with a distillation; the same as `kdnas full-distill --resume`."""
    resume_distillation(distillation, as_json)


@app.command()
def cancel(distillation: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Give a distillation up for good; its checkpoints are removed.

    A running one stops within seconds, whichever process runs it.
    """
    from api.distillations.kind import KIND
    from api.jobs.reading import read_job
    from kdnas.cli.screens import job_actions

    def said(found: Job, _: Mapping[str, Any], stops: str) -> str:
        after = f"{stops} and removes its checkpoints" if stops else "; its checkpoints are removed"
        return f"cancelled {found.name}{after}"

    job_actions.act(
        distillation,
        "cancel",
        as_json,
        table=KIND.table,
        read=partial(read_job, kind=KIND),
        said=said,
    )

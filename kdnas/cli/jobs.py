"""``kdnas jobs``: everything that takes long, whatever it is and whoever started it."""

from __future__ import annotations

from typing import Annotated

import typer

from kdnas.cli.options import common

app = typer.Typer(
    help="List, show, follow, stop, resume, name and delete work of every kind.",
    no_args_is_help=True,
)


@app.callback()
def _load_kinds() -> None:
    """Load what installed packages bring: a job of theirs can be read only then."""
    from api.jobs.registry import kinds

    kinds()


@app.command("list")
def list_all(
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind, such as search or evaluation; may be repeated."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only queued, running, paused, cancelled, failed or succeeded ones; may be "
            "repeated."
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Only those with this label; repeated: with all.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only those with this in their name.")] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="ID|NAME", help="Only the parts of this one.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Only those that this user has asked for.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also parts of others, such as a pipeline's search.")
    ] = False,
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List jobs of every kind, the newest first.

    Parts of others are left out unless a label, a name or their parent is given, or --all.
    """
    from kdnas.cli.screens import job_actions

    job_actions.list_jobs(
        kind=kind or [],
        status=status or [],
        label=label or [],
        name=name,
        parent=parent,
        owner=owner,
        roots=not everything,
        limit=limit,
        as_json=as_json,
    )


@app.command()
def show(job: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Show one job: what it does and for how long yet, how to go on, its parts, its request."""
    from kdnas.cli.screens import job_actions

    job_actions.show_job(job, as_json)


@app.command()
def watch(
    job: common.Reference,
    tail: Annotated[
        int, typer.Option(min=0, help="Begin with so many events that were before.")
    ] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a JSON object on a line.")
    ] = False,
) -> None:
    """Follow the events of a job and of its parts until it is over; 1 if it failed.

    Ctrl-C ends the watching, not the job.
    """
    from kdnas.cli.screens import job_actions

    job_actions.watch_job(job, tail, as_json)


@app.command()
def logs(
    job: common.Reference,
    tail: Annotated[int, typer.Option(min=1, help="So many of the newest lines.")] = 1000,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the job is over.")
    ] = False,
) -> None:
    """Print what the processes of the service that worked on a job have written.

    The log is in the store (KDNAS_STORE), so that it is read from any machine.
    """
    from kdnas.cli.screens import job_actions

    job_actions.print_log(job, tail, follow)


@app.command()
def pause(
    job: common.Reference,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait for students that are being trained: lose that."),
    ] = False,
    as_json: common.JsonOfService = False,
) -> None:
    """Pause a job with its parts; it goes on where it was when it is resumed.

    Students that a search or a sweep trains at the moment come to their end first, which is said
    with about how long it takes; --now, also given later, stops at once.
    """
    from kdnas.cli.screens import job_actions

    job_actions.act(job, "pause_now" if now else "pause", as_json)


@app.command()
def resume(job: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Put a paused or failed job back into the queue, where a coordinator takes it up.

    So does one that has succeeded although a part of it failed, such as states of a sweep or runs
    of distillations for a task: these are tried again.
    What the command line started is resumed by the command that started it.
    """
    from kdnas.cli.screens import job_actions

    job_actions.act(job, "resume", as_json)


@app.command()
def cancel(job: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Give a job up for good, with its parts that are not over; what has succeeded is kept.

    What works on it stops within seconds, whichever process that is.
    """
    from kdnas.cli.screens import job_actions

    job_actions.act(job, "cancel", as_json)


@app.command()
def delete(
    job: common.Reference,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --yes: also where other jobs stand on it."),
    ] = False,
    as_json: common.JsonOfService = False,
) -> None:
    """Delete a job that does not run, with its events and results; asks before it does.

    Its parts, and the jobs that stand on it, are kept without it.
    """
    from kdnas.cli.screens import job_actions

    job_actions.delete(job, yes, force, as_json)


@app.command()
def rename(
    job: common.Reference,
    name: Annotated[str, typer.Argument()],
    as_json: common.JsonOfService = False,
) -> None:
    """Give a job another name; links to it go by its id and stay whole."""
    from kdnas.cli.screens import job_actions

    job_actions.rename(job, name, as_json)


@app.command()
def label(
    job: common.Reference,
    labels: Annotated[list[str] | None, typer.Argument(metavar="[LABEL]...")] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take these labels away; without any, all of them.")
    ] = False,
    as_json: common.JsonOfService = False,
) -> None:
    """Give a job labels to find it by, or take them away; without labels, show those it has."""
    from kdnas.cli.screens import job_actions

    job_actions.label(job, list(dict.fromkeys(labels or [])), remove, as_json)


@app.command()
def priority(
    job: common.Reference,
    number: Annotated[int, typer.Argument(min=-100, max=100, help="0 unless told; higher first.")],
    as_json: common.JsonOfService = False,
) -> None:
    """Have a job and its parts taken up before, or after, others of its owner that wait."""
    from kdnas.cli.screens import job_actions

    job_actions.prioritise(job, number, as_json)


@app.command()
def note(
    job: common.Reference,
    text: Annotated[str, typer.Argument(help="An empty one takes the note away.")],
    as_json: common.JsonOfService = False,
) -> None:
    """Write down what you want to remember of a job."""
    from kdnas.cli.screens import job_actions

    job_actions.note(job, text, as_json)

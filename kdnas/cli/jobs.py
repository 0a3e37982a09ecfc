"""``kdnas jobs``: everything that takes long, whatever it is and whoever started it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from api.jobs.schemas import JobChange
    from kdnas.db.engine import Session
    from kdnas.db.models import Job
    from kdnas.db.queue.transitions import Action
    from kdnas.db.records import LeaseHolder

app = typer.Typer(
    help="List, show, follow, stop, resume, name and delete work of every kind.",
    no_args_is_help=True,
)

Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]


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
    everything: Annotated[
        bool, typer.Option("--all", help="Also parts of others, such as a pipeline's search.")
    ] = False,
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List jobs of every kind, the newest first.

    Parts of others are left out unless a label, a name or their parent is given, or --all.
    """
    from api.jobs.reading import read_page
    from api.jobs.schemas import JobQuery
    from kdnas.cli.options.choices import check_labels, checked, known_status
    from kdnas.cli.screens.jobs import listed
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    query = checked(
        JobQuery,
        "jobs list",
        kind=kind or [],
        status=[known_status(one) for one in status or []],
        label=label or [],
        name=name,
        parent=parent,
        roots=not everything,
        limit=limit,
    )
    with open_database(Settings.from_environment()) as database, database.read() as session:
        check_labels(session, query.label)
        page = read_page(session, query)
    if as_json:
        print_answer(page.items)
    elif page.items:
        typer.echo(listed(page.items))
        if page.next_cursor is not None:
            typer.echo(f"… the newest {limit}; more with --limit")
    elif kind or status or label or name or parent:
        typer.echo("no such job; kdnas jobs list shows all")
    else:
        typer.echo("no job yet; start one with kdnas search, or ask the service for one")


@app.command()
def show(job: Reference, as_json: common.JsonOfService = False) -> None:
    """Show one job: what it does and for how long yet, how to go on, its parts, its request."""
    from kdnas.cli.screens.jobs import parts_of, shown
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import jobs
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        found = jobs.get_job(session, job)
        if as_json:
            _print_job(session, found.id)
            return
        parent = None if found.parent_id is None else jobs.get_job(session, found.parent_id)
        typer.echo(shown(_row(session, found.id), found, parts_of(session, found.id), parent))


@app.command()
def watch(
    job: Reference,
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
    from datetime import UTC, datetime

    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.following import EventLines, follow_events
    from kdnas.cli.screens.jobs import does_now
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import events, jobs
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database:
        with database.read() as session:
            found = jobs.get_job(session, job)
            job_id, called = found.id, found.called
            does = does_now(_row(session, job_id), datetime.now(UTC))
            position = (
                events.start_of_tail(session, job_id, tail)
                if tail
                else events.last_event_id(session)
            )
        say(f"{called}  (id {job_id})  {does}")
        try:
            status = follow_events(database, job_id, position, EventLines(job_id, as_json))
        except KeyboardInterrupt:
            return
    if status is None:
        say(f"{called} was deleted")
    if status != "succeeded":
        raise typer.Exit(1)


@app.command()
def logs(
    job: Reference,
    tail: Annotated[int, typer.Option(min=1, help="So many of the newest lines.")] = 1000,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the job is over.")
    ] = False,
) -> None:
    """Print what the processes of the service that worked on a job have written.

    The log is in the store (KDNAS_STORE), so that it is read from any machine.
    """
    from api.logs.job_log import log_so_far, refuse_without_log
    from kdnas.cli.screens.console import say
    from kdnas.cli.screens.following import follow_log
    from kdnas.db.migrate import open_database
    from kdnas.db.models import FINAL_STATUSES
    from kdnas.db.repository import jobs
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = jobs.get_job(session, job)
            refuse_without_log(found)
            job_id, has_ended = found.id, found.status in FINAL_STATUSES
            does = _row(session, job_id)["standing"]
        if not follow:
            text = log_so_far(settings, job_id, has_ended).newest(tail)
            typer.echo(text, nl=False)
            if not text:
                say(f"nothing yet: {does}")
            return
        try:
            follow_log(database, settings, job_id, tail)
        except KeyboardInterrupt:
            return


@app.command()
def pause(job: Reference, as_json: common.JsonOfService = False) -> None:
    """Pause a job with its parts; it goes on where it was when it is resumed."""
    from kdnas.cli.screens.jobs import how_to_go_on

    def say_paused(row: dict[str, Any], found: Job, holders: list[LeaseHolder]) -> str:
        way = how_to_go_on(row, found)
        return f"paused {found.called}{_stops(holders)}; go on with: {way}"

    _act(job, "pause", say_paused, as_json)


@app.command()
def resume(job: Reference, as_json: common.JsonOfService = False) -> None:
    """Put a paused or failed job back into the queue, where a coordinator takes it up.

    What the command line started is resumed by the command that started it.
    """

    def say_resumed(row: dict[str, Any], found: Job, holders: list[LeaseHolder]) -> str:
        way = "" if "no coordinator" not in row["standing"] else "; start one with: kdnas serve"
        return f"resumed {found.called}: {row['standing']}{way}"

    _act(job, "resume", say_resumed, as_json)


@app.command()
def cancel(job: Reference, as_json: common.JsonOfService = False) -> None:
    """Give a job up for good, with its parts that are not over; what has succeeded is kept.

    What works on it stops within seconds, whichever process that is.
    """

    def say_cancelled(row: dict[str, Any], found: Job, holders: list[LeaseHolder]) -> str:
        return f"cancelled {found.called}{_stops(holders)}"

    _act(job, "cancel", say_cancelled, as_json)


@app.command()
def delete(
    job: Reference,
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
    from api.jobs.changes import delete_job
    from kdnas.cli.screens.console import say
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import jobs
    from kdnas.errors import SpecError
    from kdnas.settings import Settings

    if as_json and not yes:
        raise SpecError("--json asks nothing; add --yes to delete the job without being asked")
    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            found = jobs.get_job(session, job)
            job_id, called, running = found.id, found.called, found.status == "running"
            standing = bool(found.standing_on(session))
            consequences = _consequences(session, found)
            gone = {"id": found.id, "kind": found.kind, "name": found.name, "deleted": True}
        if not yes and not running:  # a running one is refused below
            for line in consequences:
                typer.echo(line)
            typer.confirm(f"Delete {called} for good?", abort=True)
        kept = delete_job(job_id, database, settings, with_standing=force if yes else standing)
    if kept is not None:
        say(f"warning: its log is kept: {kept}")
    if as_json:
        print_answer(gone)
    else:
        typer.echo(f"deleted {called}")


@app.command()
def rename(
    job: Reference, name: Annotated[str, typer.Argument()], as_json: common.JsonOfService = False
) -> None:
    """Give a job another name; links to it go by its id and stay whole."""
    change = _checked_change("jobs rename", name=name)
    before = ""

    def change_of(found: Job) -> JobChange:
        nonlocal before
        before = found.called
        return change

    _change(job, change_of, lambda _: f"{before} is now {name!r}", as_json)


@app.command()
def label(
    job: Reference,
    labels: Annotated[list[str] | None, typer.Argument(metavar="[LABEL]...")] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take these labels away; without any, all of them.")
    ] = False,
    as_json: common.JsonOfService = False,
) -> None:
    """Give a job labels to find it by, or take them away; without labels, show those it has."""
    from kdnas.errors import NotFoundError, unknown_name

    given = list(dict.fromkeys(labels or []))

    def change_of(found: Job) -> JobChange | None:
        had = [str(one) for one in found.labels]
        wanted = list(dict.fromkeys([*had, *given]))
        if remove:
            for one in given:
                if one not in had:
                    raise NotFoundError(unknown_name("label", one, had))
            wanted = [one for one in had if given and one not in given]
        return _checked_change("jobs label", labels=wanted) if wanted != had else None

    def said(found: Job) -> str:
        return f"labels of {found.called}: {', '.join(found.labels) or 'none'}"

    _change(job, change_of, said, as_json)


@app.command()
def note(
    job: Reference,
    text: Annotated[str, typer.Argument(help="An empty one takes the note away.")],
    as_json: common.JsonOfService = False,
) -> None:
    """Write down what you want to remember of a job."""
    change = _checked_change("jobs note", note=text)
    what = "wrote the note of" if text else "took away the note of"
    _change(job, lambda _: change, lambda found: f"{what} {found.called}", as_json)


def _act(
    reference: str,
    action: Action,
    said: Callable[[dict[str, Any], Job, list[LeaseHolder]], str],
    as_json: bool,
) -> None:
    """Pause, resume or cancel a job, and say what comes of it and who works on it."""
    from api.jobs.changes import cancel_job
    from kdnas.db.migrate import open_database
    from kdnas.db.models import Job
    from kdnas.db.queue import leases
    from kdnas.db.queue.transitions import apply_action
    from kdnas.db.repository import jobs
    from kdnas.settings import Settings

    settings = Settings.from_environment()
    with open_database(settings) as database:
        with database.read() as session:
            job_id = jobs.get_job(session, reference).id
        if action == "cancel":
            cancel_job(job_id, database, settings)
        else:
            with database.write() as session:
                apply_action(session, job_id, action)
        with database.read() as session:
            if as_json:
                _print_job(session, job_id)
                return
            found = jobs.get_job(session, job_id)
            held = (
                leases.holder(session, Job, one.id)
                for one in (found, *jobs.children(session, job_id))
            )
            holders = [holder for holder in held if holder is not None]
            typer.echo(said(_row(session, job_id), found, holders))


def _change(
    reference: str,
    change_of: Callable[[Job], JobChange | None],
    said: Callable[[Job], str],
    as_json: bool,
) -> None:
    """Change what a job is called, labelled or noted with, and say so when it is stored."""
    from api.jobs.changes import apply_change
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import jobs
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database:
        with database.write() as session:
            found = jobs.locked_job(session, jobs.get_job(session, reference).id)
            job_id, change = found.id, change_of(found)
            if change is not None:
                apply_change(session, job_id, change)
        with database.read() as session:
            if as_json:
                _print_job(session, job_id)
            else:
                typer.echo(said(jobs.get_job(session, job_id)))


def _checked_change(where: str, **values: Any) -> JobChange:
    from api.jobs.schemas import JobChange
    from kdnas.cli.options.choices import checked

    return checked(JobChange, where, **values)


def _row(session: Session, job_id: str) -> dict[str, Any]:
    from api.jobs.reading import read_job

    return read_job(session, job_id)


def _print_job(session: Session, job_id: str) -> None:
    from kdnas.cli.tables.answers import print_answer

    print_answer(_row(session, job_id))


def _stops(holders: list[LeaseHolder]) -> str:
    """Who works on a job or on a part of it, and that they stop."""
    if not holders:
        return ""
    if len(holders) > 1:
        return f"; {len(holders)} processes, which work on its parts, stop within seconds"
    (holder,) = holders
    return f"; process {holder.pid} on {holder.host}, which works on it, stops within seconds"


def _consequences(session: Session, found: Job) -> list[str]:
    """What deleting a job does to others, a line each."""
    from kdnas.db.models import FINAL_STATUSES
    from kdnas.db.repository import jobs

    lines = [
        f"{other.called} stands on it, and is kept without it"
        for other in found.standing_on(session)
    ]
    parts = jobs.children(session, found.id)
    unfinished = sum(part.status not in FINAL_STATUSES for part in parts)
    if parts:
        kept = "its only part is kept" if len(parts) == 1 else f"its {len(parts)} parts are kept"
        lines.append(f"{kept}, {unfinished} of them cancelled" if unfinished else kept)
    return lines

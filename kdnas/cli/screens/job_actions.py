"""What `kdnas jobs` does, on the screen; what it shares with the commands of single kinds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import typer

from api.jobs.changes import apply_change, cancel_job, delete_job
from api.jobs.reading import read_job, read_page
from api.jobs.schemas import JobChange, JobQuery
from api.logs.job_log import log_so_far, refuse_without_log
from kdnas.cli.options.choices import check_labels, checked, known_status
from kdnas.cli.screens.console import say
from kdnas.cli.screens.following import EventLines, follow_events, follow_log
from kdnas.cli.screens.jobs import does_now, how_to_go_on, listed, parts_of, shown
from kdnas.cli.stored import reading, stored
from kdnas.cli.tables.answers import print_answer, print_lines
from kdnas.db.engine import Database, Session
from kdnas.db.models import FINAL_STATUSES, Job
from kdnas.db.queue import coordinators, leases
from kdnas.db.queue.transitions import Action, apply_action
from kdnas.db.records import LeaseHolder
from kdnas.db.repository import events, jobs
from kdnas.errors import NotFoundError, SpecError, unknown_name

WORDS_SECONDS: Final = 3.0
"""So long a pause waits for the process at work to say what it lets come to its end."""

Row = Mapping[str, Any]
Said = Callable[[Job, Row, str], str]
"""What is said of a job that was acted on, given its row and who stops working on it."""


def list_jobs(
    *, kind: list[str], status: list[str], label: list[str], as_json: bool, **wanted: Any
) -> None:
    """Print the newest jobs of those that are wanted.

    Raises:
        RequestError: there is no such kind, status, label or parent.
    """
    statuses = [known_status(one) for one in status]
    query = checked(JobQuery, "jobs list", kind=kind, status=statuses, label=label, **wanted)
    with reading() as session:
        check_labels(session, query.label)
        page = read_page(session, query)
    more = f"\n… the newest {query.limit}; more with --limit" if page.next_cursor else ""
    nothing = "no job yet; start one with kdnas search, or ask the service for one"
    if kind or status or label or query.name or query.parent or query.owner:
        nothing = "no such job; kdnas jobs list shows all"
    if as_json:
        print_answer(page.items)
    else:
        typer.echo(listed(page.items) + more if page.items else nothing)


def show_job(reference: str, as_json: bool) -> None:
    """Print one job in full."""
    with reading() as session:
        found = jobs.get_job(session, reference)
        if as_json:
            print_answer(read_job(session, found.id))
            return
        parent = None if found.parent_id is None else jobs.get_job(session, found.parent_id)
        typer.echo(shown(_row(session, found), found, parts_of(session, found.id), parent))


def _row(session: Session, job: Job) -> Row:
    """Read a job with whether a coordinator looks after the queue."""
    return {**read_job(session, job.id), "attended": coordinators.count_alive(session) > 0}


def watch_job(reference: str, tail: int, as_json: bool) -> None:
    """Follow the events of a job until it is over, or Ctrl-C.

    Raises:
        typer.Exit: 1 if it did not succeed.
    """
    with stored() as (database, _):
        with database.read() as session:
            found = jobs.get_job(session, reference)
            job_id, called = found.id, found.called
            does = does_now(read_job(session, job_id), datetime.now(UTC))
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


def print_log(reference: str, tail: int, follow: bool) -> None:
    """Print the end of a job's log; go on with it, if asked to, until the job is over or Ctrl-C."""
    with stored() as (database, settings):
        with database.read() as session:
            found = jobs.get_job(session, reference)
            refuse_without_log(found)
            job_id, has_ended = found.id, found.status in FINAL_STATUSES
            does = read_job(session, job_id)["standing"]
        if follow:
            try:
                follow_log(database, settings, job_id, tail)
            except KeyboardInterrupt:
                return
        else:
            text = log_so_far(settings, job_id, has_ended).newest(tail)
            typer.echo(text, nl=False)
            if not text:
                say(f"nothing yet: {does}")


def _paused(found: Job, row: Row, stops: str) -> str:
    return f"paused {found.called}{stops}; go on with: {how_to_go_on(row, found)}"


def _resumed(found: Job, row: Row, stops: str) -> str:
    way = "; start one with: kdnas serve" if how_to_go_on(row, found) else ""
    return f"resumed {found.called}: {row['standing']}{way}"


def _cancelled(found: Job, row: Row, stops: str) -> str:
    return f"cancelled {found.called}{stops}"


_SAID: Final[Mapping[Action, Said]] = {
    "pause": _paused,
    "pause_now": _paused,
    "resume": _resumed,
    "cancel": _cancelled,
}


def act(
    reference: str,
    action: Action,
    as_json: bool,
    *,
    table: type[Job] = Job,
    read: Callable[[Session, str], Any] = read_job,
    said: Said | None = None,
) -> None:
    """Pause, resume or cancel a job, and say what comes of it and who works on it.

    Args:
        reference: id or name.
        action: what is done to it.
        as_json: print it as the service answers.
        table: of its kind; any.
        read: reads it for that.
        said: what is said of it else, unless what is said of any job.

    Raises:
        NotFoundError: there is no such job.
        ConflictError: its status forbids that.
    """
    with stored() as (database, settings):
        with database.read() as session:
            job_id = jobs.id_of(session, reference, table)
        if action == "cancel":
            cancel_job(job_id, database, settings, by="cli")
        else:
            with database.write(by="cli") as session:
                apply_action(session, job_id, action)
        if action == "pause":
            _wait_for_words(database, job_id)
        with database.read() as session:
            if as_json:
                print_answer(read(session, job_id))
                return
            found = jobs.get_job(session, job_id)
            tell = said or _SAID[action]
            typer.echo(tell(found, _row(session, found), _stops(session, found)))


def _wait_for_words(database: Database, job_id: str) -> None:
    """Wait until whoever works on a paused job or a part of it is gone, or says what it ends."""
    deadline = time.monotonic() + WORDS_SECONDS
    while time.monotonic() < deadline:
        with database.read() as session:
            held = _held(session, jobs.get_job(session, job_id))
            if all(one.phase for one, _ in held):
                return
        time.sleep(0.1)


def _held(session: Session, found: Job) -> list[tuple[Job, LeaseHolder]]:
    """A job and its parts, as far as somebody works on them."""
    every = (found, *jobs.children(session, found.id))
    held = ((one, leases.holder(session, Job, one.id)) for one in every)
    return [(one, holder) for one, holder in held if holder is not None]


def _stops(session: Session, found: Job) -> str:
    """Who works on a job or on a part of it, and when they stop."""
    held = _held(session, found)
    ending = [one.phase for one, _ in held if one.status == "paused" and one.phase]
    holders = [holder for _, holder in held]
    if not holders:
        return ""
    if ending:
        now = f"kdnas jobs pause --now {found.name or found.id}"
        return f"; {'; '.join(ending)}; at once, which loses their training, with: {now}"
    if len(holders) > 1:
        return f"; {len(holders)} processes, which work on its parts, stop within seconds"
    (holder,) = holders
    return f"; process {holder.pid} on {holder.host}, which works on it, stops within seconds"


def delete(reference: str, yes: bool, force: bool, as_json: bool) -> None:
    """Delete a job for good; ask first, unless told not to.

    Raises:
        RequestError: ``--json`` alone, no such job, it is running, or others stand on it.
    """
    if as_json and not yes:
        raise SpecError("--json asks nothing; add --yes to delete the job without being asked")
    with stored() as (database, settings):
        with database.read() as session:
            found = jobs.get_job(session, reference)
            job_id, called, running = found.id, found.called, found.status == "running"
            standing = found.standing_on(session)
            consequences = _consequences(session, found, standing)
            gone = {"id": job_id, "kind": found.kind, "name": found.name, "deleted": True}
        if not yes and not running:  # a running one is refused below
            print_lines(consequences)
            typer.confirm(f"Delete {called} for good?", abort=True)
        with_standing = force if yes else bool(standing)
        kept = delete_job(job_id, database, settings, with_standing=with_standing, by="cli")
    if kept is not None:
        say(f"warning: its log is kept: {kept}")
    if as_json:
        print_answer(gone)
    else:
        typer.echo(f"deleted {called}")


def _consequences(session: Session, found: Job, standing: Sequence[Job]) -> list[str]:
    """What deleting a job does to others, a line each."""
    lines = [f"{other.called} stands on it, and is kept without it" for other in standing]
    parts = jobs.children(session, found.id)
    unfinished = sum(part.status not in FINAL_STATUSES for part in parts)
    if parts:
        kept = "its only part is kept" if len(parts) == 1 else f"its {len(parts)} parts are kept"
        lines.append(f"{kept}, {unfinished} of them cancelled" if unfinished else kept)
    return lines


def rename(reference: str, name: str, as_json: bool) -> None:
    """Give a job another name."""
    _change(
        reference,
        "jobs rename",
        as_json,
        lambda _: {"name": name},
        lambda before, _: f"{before} is now {name!r}",
    )


def note(reference: str, text: str, as_json: bool) -> None:
    """Write the note of a job, or take it away."""
    what = "wrote the note of" if text else "took away the note of"
    _change(
        reference,
        "jobs note",
        as_json,
        lambda _: {"note": text},
        lambda called, _: f"{what} {called}",
    )


def prioritise(reference: str, priority: int, as_json: bool) -> None:
    """Give a job a priority among those of its owner that wait."""
    _change(
        reference,
        "jobs priority",
        as_json,
        lambda _: {"priority": priority},
        lambda called, _: f"{called} has priority {priority}",
    )


def label(reference: str, given: Sequence[str], remove: bool, as_json: bool) -> None:
    """Give a job labels, take some or all of them away, or show those it has."""

    def change_of(found: Job) -> dict[str, Any]:
        had = [str(one) for one in found.labels]
        wanted = list(dict.fromkeys([*had, *given]))
        if remove:
            for one in given:
                if one not in had:
                    raise NotFoundError(unknown_name("label", one, had))
            wanted = [one for one in had if given and one not in given]
        return {"labels": wanted} if wanted != had else {}

    def said(called: str, found: Job) -> str:
        return f"labels of {called}: {', '.join(found.labels) or 'none'}"

    _change(reference, "jobs label", as_json, change_of, said)


def _change(
    reference: str,
    where: str,
    as_json: bool,
    change_of: Callable[[Job], dict[str, Any]],
    said: Callable[[str, Job], str],
) -> None:
    """Change what a job is called, labelled or noted with, and say so when it is stored.

    Args:
        reference: id or name.
        where: which command was given the change, for the message if it is refused.
        as_json: print the job as the service answers.
        change_of: fields of the change; none, if there is nothing to change.
        said: what is said of the job else, given what it was called before.
    """
    with stored() as (database, _):
        with database.write(by="cli") as session:
            found = jobs.locked_job(session, jobs.id_of(session, reference))
            job_id, called, values = found.id, found.called, change_of(found)
            if values:
                apply_change(session, job_id, checked(JobChange, where, **values))
        with database.read() as session:
            if as_json:
                print_answer(read_job(session, job_id))
            else:
                typer.echo(said(called, jobs.get_job(session, job_id)))

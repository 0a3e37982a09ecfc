"""``kdnas task-distillations``: what was distilled for single tasks, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.choices import known_status
from kdnas.cli.screens.task_distillation import listed, report_lines, run_line, shown
from kdnas.cli.stored import reading, stored
from kdnas.cli.tables.answers import print_answer, print_lines
from kdnas.errors import SpecError, unknown_name

if TYPE_CHECKING:
    from kdnas.db.engine import Session
    from kdnas.db.lists.pages import PageOf

app = typer.Typer(help="List and show distillations for one task.", no_args_is_help=True)

RUNS_A_PAGE = 500
"""That are read at once."""


@app.command("list")
def list_all(
    status: Annotated[
        str | None,
        typer.Option(help="Only queued, running, paused, cancelled, failed or succeeded ones."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Only those for this task, such as RTE.")] = None,
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List distillations for tasks, the newest first."""
    from api.jobs.reading import read_page
    from api.task_distillations.kind import KIND
    from api.task_distillations.schemas import TaskDistillationQuery

    wanted = [] if status is None else [known_status(status)]
    query = TaskDistillationQuery(status=wanted, task=task, limit=limit)
    with reading() as session:
        found = read_page(session, query, KIND).items
    if as_json:
        print_answer(found)
        return
    nothing = "nothing was distilled for a task yet; start with kdnas task-distill --task ..."
    if status or task:
        nothing = "no such distillation; kdnas task-distillations list shows all"
    typer.echo(listed(found) if found else nothing)


@app.command()
def show(task_distillation: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Show one: the teacher and its layers, the student, and what each run came to."""
    from api.jobs.reading import read_job
    from api.task_distillations.kind import KIND

    with reading() as session:
        found = read_job(session, task_distillation, KIND)
        if as_json:
            print_answer(found)
            return
        runs = _all_runs(session, found["id"]).items
    print_lines(shown(found, runs))


@app.command()
def runs(task_distillation: common.Reference, as_json: common.JsonOfService = False) -> None:
    """List the runs that are done; as JSON with their curves, attention and examples."""
    from kdnas.db.repository import task_distillations

    with reading() as session:
        job_id = task_distillations.get_task_distillation(session, task_distillation).id
        page = _all_runs(session, job_id)
        if as_json:
            print_answer(page)
            return
        lines = [run_line(run).strip() for run in page.items]
    print_lines(lines or ["no run is done yet"])


def _all_runs(session: Session, job_id: str) -> PageOf[dict[str, Any]]:
    """All pages as one."""
    from kdnas.db.lists.task_distillation_pages import list_runs

    page = list_runs(session, job_id, {}, limit=RUNS_A_PAGE)
    items = [*page.items]
    while page.next_cursor is not None:
        page = list_runs(session, job_id, {}, limit=RUNS_A_PAGE, cursor=page.next_cursor)
        items += page.items
    return replace(page, items=items)


@app.command()
def report(
    task_distillation: common.Reference,
    output_format: Annotated[
        str,
        typer.Option(
            "--format", help="text, md (Markdown), csv (a line a method, fractions) or json."
        ),
    ] = "text",
    as_json: common.JsonOfService = False,
) -> None:
    """Sum up the runs of one by method, beside vanilla distillation and published rows."""
    from api.task_distillations.report import task_report
    from kdnas.cli.tables.task_reports import as_csv, as_markdown

    texts = {"md": as_markdown, "csv": as_csv}
    if output_format not in (known := ("text", *texts, "json")):
        raise SpecError(unknown_name("format", output_format, known))
    with stored() as (database, settings), database.read() as session:
        found = task_report(session, settings, task_distillation)
    if as_json or output_format == "json":
        print_answer(found)
    elif output_format in texts:
        typer.echo(texts[output_format](found))
    else:
        print_lines(report_lines(found))

"""``kdnas searches``: what was searched, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kdnas.cli.options import common
from kdnas.cli.screens.search import found_so_far, show_result
from kdnas.cli.stored import reading, stored
from kdnas.cli.tables.answers import answer, print_answer, print_lines
from kdnas.cli.tables.candidates import WRITERS, write_table
from kdnas.errors import SpecError, unknown_name
from kdnas.specs.search import MOST_PROPOSED

if TYPE_CHECKING:
    from kdnas.db.lists.job_pages import Row

OPTUNA: Final = "optuna"

app = typer.Typer(help="List, show and export searches.", no_args_is_help=True)


@app.command("list")
def list_all(
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List searches, the newest first."""
    from api.jobs.reading import read_page
    from api.searches.kind import KIND

    with reading() as session:
        found = read_page(session, KIND.query(limit=limit), KIND).items
    if as_json:
        print_answer(found)
        return
    print_lines(map(_line, found) if found else ["no search yet; start one with kdnas search"])


def _line(row: Row) -> str:
    return (
        f"{row['name']:<24} {row['status']:<10} {row['created_at']:%Y-%m-%d %H:%M}  "
        f"{found_so_far(row):<18} {row['teacher']} on {', '.join(row['corpus'])}  (id {row['id']})"
    )


@app.command()
def show(search: common.Reference, as_json: common.JsonOfService = False) -> None:
    """Show what a search has found so far.

    `--json` prints what the service answers; the object of `kdnas search --json` is its `summary`,
    with the best 20 states.
    """
    from api.searches.analysis import analysis_lines
    from api.searches.reading import search_summary

    with stored() as (database, _):
        if as_json:
            from api.jobs.reading import read_job
            from api.searches.kind import KIND

            with database.read() as session:
                print_answer(read_job(session, search, KIND))
        else:
            show_result(search_summary(search, database), to_stderr=False)
            print_lines(["", *analysis_lines(search, database)])


@app.command()
def export(
    search: common.Reference,
    output: Annotated[
        Path, typer.Option(help="File to write: .csv, .json or .parquet by its ending.")
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv, json, parquet, or optuna: a study in SQLite.  [default: by the ending]",
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Write every candidate of a search to a file; what is there is replaced."""
    from kdnas.db.exploration import candidates
    from kdnas.db.repository import searches

    kind = _kind(output, format_)
    write: Callable[[Path], int]
    with reading() as session:
        record = searches.get_search(session, search)
        if kind == OPTUNA:
            from kdnas.cli.tables.studies import write_study
            from kdnas.db.lists.candidate_pages import candidates_after

            facts = searches.search_facts(session, record.id)
            found = candidates_after(session, record.id, None, MOST_PROPOSED)
            write = partial(write_study, record, None if facts is None else facts.axes, found)
        else:
            episodes = candidates.list_episodes(session, record.id)
            write = partial(write_table, episodes, kind=kind)
    rows = write(output)
    plain = {
        "id": record.id,
        "name": record.name,
        "status": record.status,
        "created_at": record.created_at.isoformat(),
        "error": record.error,
        "rows": rows,
        "file": str(output),
    }
    answer(plain, as_json, [f"{rows} candidates of {record.name} written to {output}"])


def _kind(output: Path, format_: str | None) -> str:
    if format_ is not None:
        if format_ not in {*WRITERS, OPTUNA}:
            raise SpecError(unknown_name("format", format_, [*WRITERS, OPTUNA]))
        return format_
    kind = output.suffix.removeprefix(".")
    if kind not in WRITERS:
        endings = [f".{known}" for known in WRITERS]
        raise SpecError(
            f"{unknown_name('file ending', output.suffix, endings)}; --format names others, such "
            "as optuna"
        )
    return kind

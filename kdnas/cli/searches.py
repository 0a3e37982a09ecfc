"""``kdnas searches``: what was searched, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from kdnas.records import SearchRecord

app = typer.Typer(help="List, show and export searches.", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]


@app.command("list")
def list_all(
    limit: common.Limit = 20,
    as_json: common.JsonOfService = False,
) -> None:
    """List searches, the newest first."""
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import searches
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        if as_json:
            from api.jobs.reading import read_page
            from api.searches.kind import KIND
            from kdnas.cli.tables.answers import print_answer

            print_answer(read_page(session, KIND.query(limit=limit), KIND).items)
            return
        found = searches.list_searches(session, limit=limit)
    for record in found:
        teacher, corpus = record.spec["teacher"]["ref"], ", ".join(record.spec["corpus"]["source"])
        typer.echo(
            f"{record.name:<24} {record.status:<10} {record.created_at:%Y-%m-%d %H:%M}  "
            f"{teacher} on {corpus}  (id {record.id})"
        )
    if not found:
        typer.echo("no search yet; start one with kdnas search")


@app.command()
def show(search: Reference, as_json: common.JsonOfService = False) -> None:
    """Show what a search has found so far.

    `--json` prints what the service answers; the object of `kdnas search --json` is its `summary`,
    with the best 20 states.
    """
    from kdnas.db.migrate import open_database
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database:
        if as_json:
            from api.jobs.reading import read_job
            from api.searches.kind import KIND
            from kdnas.cli.tables.answers import print_answer

            with database.read() as session:
                print_answer(read_job(session, search, KIND))
            return
        from api.searches.reading import search_summary
        from kdnas.cli.screens.search import show_result

        show_result(search_summary(search, database), to_stderr=False)


@app.command()
def export(
    search: Reference,
    output: Annotated[
        Path, typer.Option(help="File to write: .csv, .json or .parquet by its ending.")
    ],
    as_json: common.Json = False,
) -> None:
    """Write every candidate of a search to a file."""
    from kdnas.cli.tables.candidates import write_table
    from kdnas.db.exploration import candidates
    from kdnas.db.migrate import open_database
    from kdnas.db.repository import searches
    from kdnas.settings import Settings

    with open_database(Settings.from_environment()) as database, database.read() as session:
        record = searches.get_search(session, search)
        episodes = candidates.list_episodes(session, record.id)
    rows = write_table(record, episodes, output)
    if as_json:
        typer.echo(json.dumps({**_search_json(record), "rows": rows, "file": str(output)}))
    else:
        typer.echo(f"{rows} candidates of {record.name} written to {output}")


def _search_json(record: SearchRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "status": record.status,
        "created_at": record.created_at.isoformat(),
        "error": record.error,
    }

"""``kdnas db``: migrate the database, and ask how it stands."""

from __future__ import annotations

import typer

from kdnas.errors import DatabaseError
from kdnas.settings import Settings

_MOST_LISTED = 20
app = typer.Typer(help="Migrate the database, and ask how it stands.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Bring the database of KDNAS_DATABASE_URL to the newest revision."""
    from kdnas.db import migrate

    before, after = migrate.upgrade(Settings.from_environment().database_url)
    if before == after:
        typer.echo(f"already at revision {after}")
    else:
        typer.echo(f"migrated from {before or 'an empty database'} to revision {after}")


@app.command()
def current() -> None:
    """Print the revision of the database, and the one that this program needs."""
    from kdnas.db import migrate

    revision, needed = migrate.current(Settings.from_environment().database_url), migrate.head()
    advice = "up to date" if revision == needed else f"needs {needed}: run `kdnas db upgrade`"
    typer.echo(f"{revision or 'empty'} ({advice})")


@app.command()
def check() -> None:
    """Compare the tables of the database with those that this program expects.

    Ends with exit code 1 if they differ.
    """
    from kdnas.db import migrate

    differences = migrate.check(Settings.from_environment().database_url)
    if differences:
        listed = "".join(f"\n  - {difference}" for difference in differences[:_MOST_LISTED])
        if len(differences) > _MOST_LISTED:
            listed += f"\n  - and {len(differences) - _MOST_LISTED} more"
        raise DatabaseError(
            f"the database differs from this program in {len(differences)} places; run "
            f"`kdnas db upgrade`:{listed}"
        )
    typer.echo("the database fits this program")

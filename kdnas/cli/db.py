"""``kdnas db``: migrate the database, ask how it stands, back it up and restore it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdnas.errors import DatabaseError
from kdnas.paths import expanded
from kdnas.settings import Settings

_MOST_LISTED = 20
app = typer.Typer(help="Migrate the database, ask how it stands, back it up.", no_args_is_help=True)


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
def downgrade(revision: Annotated[str, typer.Argument(help="Where to go back to.")]) -> None:
    """Take the database back to an older revision, for an older kdnas; stop the service first.

    What only newer revisions have a place for is lost; make a backup before.
    """
    from kdnas.db import migrate

    before, after = migrate.downgrade(Settings.from_environment().database_url, revision)
    typer.echo(f"taken back from revision {before} to {after}; install the kdnas that it is for")


@app.command()
def backup(file: Annotated[Path, typer.Argument(help="Where it is to go; a new file.")]) -> None:
    """Copy the SQLite database to a new file, checked and whole, while the service runs.

    PostgreSQL has pg_dump for that; docs/operations.md shows how.
    """
    from kdnas.db.backup import back_up

    made = back_up(Settings.from_environment().database_url, expanded(file).absolute())
    typer.echo(f"{made.path}: revision {made.revision}, {made.num_bytes:,} bytes, checked")


@app.command()
def restore(file: Annotated[Path, typer.Argument(help="A backup.")]) -> None:
    """Put a checked backup in the place of the SQLite database; stop the service first.

    The database that was there is kept beside it.
    """
    from kdnas.db.backup import restore as put_back

    done = put_back(Settings.from_environment().database_url, expanded(file).absolute())
    kept = "" if done.kept is None else f"; what was there before is {done.kept}"
    typer.echo(f"restored from {file} at revision {done.revision}{kept}")


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

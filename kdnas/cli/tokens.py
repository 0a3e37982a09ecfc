"""``kdnas tokens``: who may use the service, each by a token of his own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from kdnas.cli.options import common
from kdnas.cli.screens.console import say
from kdnas.cli.stored import reading, stored
from kdnas.errors import SpecError, unknown_name
from kdnas.records import Role

if TYPE_CHECKING:
    from kdnas.db.records import TokenRecord

MOST_DAYS = 36_500

app = typer.Typer(
    help="Make, list and revoke the tokens with which users log in to the service.",
    no_args_is_help=True,
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Of the user; jobs and events will say it.")],
    role: Annotated[
        str, typer.Option(help="viewer, who may read, or operator, who may do everything.")
    ],
    days: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DAYS, help="It ends after so many days.  [default: never]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the token and what is kept of it, as JSON.")
    ] = False,
) -> None:
    """Make a token for a user and print it, once: only its hash is kept.

    As soon as there is a token, the service asks everybody for one.
    """
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.base import utc_now
    from kdnas.db.repository import tokens

    if role not in get_args(Role):
        raise SpecError(unknown_name("role", role, get_args(Role)))
    ends = None if days is None else utc_now() + timedelta(days=days)
    with stored() as (database, _), database.write(by="cli") as session:
        made, token = tokens.create_token(session, name, cast(Role, role), ends)
    if as_json:
        print_answer({**_shown(made), "token": token})
        return
    say(f"token {made.id} of {name}, {_ends(made)}; it is shown only now:")
    typer.echo(token)


@app.command("list")
def list_all(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were revoked.")
    ] = False,
    as_json: common.JsonOfService = False,
) -> None:
    """List the tokens, the newest first; what can be logged in with is shown nowhere."""
    from kdnas.cli.tables.answers import print_answer
    from kdnas.cli.tables.formats import as_text
    from kdnas.db.repository import tokens

    with reading() as session:
        found = tokens.list_tokens(session, revoked=everything)
    if as_json:
        print_answer([_shown(record) for record in found])
        return
    columns = ("user", "role", "state", "used", "created", "id")
    rows = [_cells(record) for record in found]
    nothing = "no token yet; make one with kdnas tokens create NAME --role operator"
    typer.echo(as_text(columns, rows) if rows else nothing)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID|NAME", help="A user's name ends all of his.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was revoked, as JSON.")
    ] = False,
) -> None:
    """End a token, or all those of a user: its sessions end with it, within seconds."""
    from kdnas.cli.tables.answers import print_answer
    from kdnas.db.repository import tokens

    with stored() as (database, settings), database.write(by="cli") as session:
        gone = tokens.revoke(session, token)
        left = len(tokens.list_tokens(session))
    if as_json:
        print_answer([_shown(record) for record in gone])
    else:
        for record in gone:
            typer.echo(f"revoked token {record.id} of {record.name} ({record.role})")
    if not left and settings.operator_token is None:
        say(
            "no token is left: a service on this machine's own address asks nobody for one, unless "
            "KDNAS_OPERATOR_TOKEN is set for it"
        )


def _shown(record: TokenRecord) -> dict[str, Any]:
    """What may be shown of a token."""
    names = ("id", "name", "role", "created_at", "expires_at", "last_used_at", "revoked_at")
    return {name: getattr(record, name) for name in names}


def _cells(record: TokenRecord) -> list[str]:
    from kdnas.cli.screens.times import age
    from kdnas.db.base import utc_now

    now, used = utc_now(), record.last_used_at
    return [
        record.name,
        record.role,
        _ends(record),
        "never" if used is None else f"{age(now - used)} ago",
        f"{age(now - record.created_at)} ago",
        record.id,
    ]


def _ends(record: TokenRecord) -> str:
    from kdnas.cli.screens.times import moment
    from kdnas.db.base import utc_now

    if record.revoked_at is not None:
        return f"revoked {moment(record.revoked_at)} UTC"
    if record.expires_at is None:
        return "valid until it is revoked"
    word = "ended" if record.is_over(utc_now()) else "valid until"
    return f"{word} {moment(record.expires_at)} UTC"

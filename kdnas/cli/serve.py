"""``kdnas serve``: the service with REST API, dashboard and coordinator."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from kdnas.cli.screens.console import say
from kdnas.settings import Settings


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    no_coordinator: Annotated[
        bool,
        typer.Option(
            "--no-coordinator", help="Answer only; `kdnas coordinator` elsewhere does the work."
        ),
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(help="Running Ray cluster.  [default: KDNAS_RAY_ADDRESS, else a local one]"),
    ] = None,
) -> None:
    """Serve the REST API and the dashboard, and do what is queued.

    Anything but this machine's own address wants KDNAS_OPERATOR_TOKEN, or a token of an operator
    (`kdnas tokens create`).
    """
    from api.http.security import check_address, check_tokens, lets_others_in

    settings = Settings.from_environment()
    if ray_address:
        settings = replace(settings, ray_address=ray_address)
    check_tokens(settings)

    from api.http.app import create_app
    from api.http.server import listen, run
    from api.logs.service_log import configure_logs
    from kdnas.allocator import give_back_freed_memory, share_freed_memory
    from kdnas.db.migrate import open_database
    from kdnas.db.repository.tokens import list_tokens

    share_freed_memory()
    give_back_freed_memory()
    configure_logs()
    with open_database(settings) as database:
        with database.read() as session:
            check_address(host, settings, list_tokens(session))
        with listen(host, port) as listener:
            app = create_app(
                settings,
                database,
                coordinator=not no_coordinator,
                login_always=lets_others_in(host, settings),
            )
            shown = f"[{host}]" if ":" in host else host
            say(f"kdnas listens on http://{shown}:{listener.getsockname()[1]} (Ctrl-C stops it)")
            run(app, listener)

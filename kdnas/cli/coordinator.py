"""``kdnas coordinator``: what `kdnas serve` does, without answering anybody."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from kdnas.cli.stored import stored

STOP_SECONDS = 10.0


def coordinator(
    ray_address: Annotated[
        str | None,
        typer.Option(help="Running Ray cluster.  [default: KDNAS_RAY_ADDRESS, else a local one]"),
    ] = None,
    max_running: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Searches and distillations at a time.  [default: KDNAS_MAX_RUNNING, else fits "
            "cores and memory]",
        ),
    ] = None,
) -> None:
    """Do what is queued, for a `kdnas serve --no-coordinator` on the same database.

    Any number of them may share a PostgreSQL database, on any number of machines. SIGTERM or
    Ctrl-C gives back what is running, within ten seconds; whichever coordinator is next goes on
    with it.
    """
    from api.jobs.coordinator import Coordinator
    from api.logs.service_log import configure_logs
    from kdnas.allocator import give_back_freed_memory, share_freed_memory

    share_freed_memory()
    give_back_freed_memory()
    configure_logs()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with stored() as (database, settings):
        work = Coordinator(settings, database, ray_address, max_running)
        work.start()
        ended.wait()
        work.stop(STOP_SECONDS)

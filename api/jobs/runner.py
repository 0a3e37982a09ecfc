"""One job in a process of its own: ``python -m api.jobs.runner ID``.

The coordinator starts it with a claim's token in the environment and a pipe as its stdin. It ends
at once when that pipe closes, since then the coordinator is gone, and in good order on SIGTERM:
the job stays ``running`` without a lease, for the next coordinator. A job that somebody has paused
or cancelled is let go of within seconds.

Exit codes: 0 done, or stopped as it was asked to; 1 the work failed, 2 the request was wrong, and
the job says why unless somebody else works on it by now; 75 (EX_TEMPFAIL) it could not be done at
present, since database or cluster is out of reach or the cluster has no room, and should be tried
again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

import structlog

from api.jobs.registry import kinds
from api.jobs.work import do_job
from api.logs.service_log import configure_logs
from kdnas.db.engine import Database, Session
from kdnas.db.migrate import open_database
from kdnas.db.repository import jobs
from kdnas.db.repository.events import append_event
from kdnas.errors import (
    CancelledError,
    DatabaseError,
    NoRoomError,
    NotFoundError,
    NotNowError,
    RequestError,
)
from kdnas.settings import Settings

TOKEN_VARIABLE: Final = "KDNAS_CLAIM"
EXIT_FAILED, EXIT_WRONG_REQUEST, EXIT_LEFT_ALONE = 1, 2, 75

log = structlog.get_logger("kdnas.runner")


def asked_to_end() -> Callable[[], bool]:
    """Return what says whether the coordinator wants this process to end in good order."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the coordinator's to pass on
    return asked.is_set


def run(job_id: str, token: str, settings: Settings, drain: Callable[[], bool]) -> int:
    """Do one job; the exit code says how it ended."""
    settings = settings.for_service()
    try:
        seconds = settings.database_patience_seconds
        with (
            open_database(settings) as database,
            database.patient(seconds, log.warning, lambda: int(drain())),
        ):
            try:
                log.info("ended", status=_do(job_id, token, database, settings, drain))
            except NotNowError as error:
                what = "room" if isinstance(error, NoRoomError) else "the cluster"
                log.info("left for later", waiting_for=what, reason=str(error))
                _tell_of_waiting(job_id, database, f"waiting for {what}", str(error))
                return EXIT_LEFT_ALONE
    except CancelledError as error:
        log.info("cancelled", reason=str(error))
    except DatabaseError as error:
        log.error("left alone", reason=str(error))
        return EXIT_LEFT_ALONE
    except RequestError as error:
        log.error("failed", reason=str(error))
        return EXIT_WRONG_REQUEST
    except Exception as error:  # the job says so in a sentence, the log where it happened
        log.exception("failed", reason=str(error))
        return EXIT_FAILED
    return 0


def _do(
    job_id: str, token: str, database: Database, settings: Settings, drain: Callable[[], bool]
) -> str:
    known = kinds()  # before a job is read: what packages bring has to be loaded
    kind = database.ask(lambda session: known[jobs.get_job(session, job_id).kind])
    structlog.contextvars.bind_contextvars(**{kind.name: job_id})
    if kind.run is None:
        raise NotFoundError(f"a {kind.name} has no work of its own; its parts have")
    return do_job(
        job_id,
        database,
        settings,
        kind.run,
        claim=token,
        should_stop=drain,
        at_once=drain,
        stopped_status="running",
        clean_up=kind.clean_up,
    )


def _tell_of_waiting(job_id: str, database: Database, text: str, reason: str) -> None:
    """Say what a job waits for that goes back to be tried again later; again only if it is new."""

    def write(session: Session) -> None:
        if jobs.note_phase(session, job_id, text):
            kind = jobs.get_job(session, job_id).kind
            payload = {"text": f"{text}: {reason}", "share": None}
            append_event(session, f"{kind}_preparing", payload, job_id=job_id)

    database.transact(write)


def end_with_parent() -> None:
    """Have this process end at once when its stdin closes."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(EXIT_LEFT_ALONE)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> None:
    """Run what the command line names."""
    if len(sys.argv) != 2 or TOKEN_VARIABLE not in os.environ:
        sys.exit(f"usage: {TOKEN_VARIABLE}=TOKEN python -m api.jobs.runner ID")
    end_with_parent()
    drain = asked_to_end()
    configure_logs()
    token = os.environ.pop(TOKEN_VARIABLE)
    code = run(sys.argv[1], token, Settings.from_environment(), drain)
    logging.shutdown()
    os._exit(code)  # tearing down torch takes seconds, and there is nothing left to save


if __name__ == "__main__":
    main()

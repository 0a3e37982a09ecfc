"""One piece of work in a process of its own: ``python -m api.jobs.runner KIND ID``.

The coordinator starts it with a claim's token in the environment and a pipe as its stdin. It ends
at once when that pipe closes, since then the coordinator is gone, and in good order on SIGTERM:
the row stays ``running`` without a lease, for the next coordinator. A row that somebody has paused
or cancelled is let go of within seconds.

Exit codes: 0 done, or stopped as it was asked to; 1 the work failed, 2 the request was wrong, and
the row says why unless somebody else works on it by now; 75 (EX_TEMPFAIL) it could not be done at
present, since database or cluster is out of reach or the cluster has no room, and should be tried
again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal, get_args

import structlog

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.repository.evaluations import note_evaluation_progress
from kdnas.db.repository.events import append_event, payloads_of
from kdnas.errors import CancelledError, DatabaseError, NoRoomError, NotNowError, RequestError
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.corpus.tokenized import CorpusProgress
    from kdnas.search.progress import Progress

Kind = Literal["search", "distillation", "evaluation", "latency"]

TOKEN_VARIABLE: Final = "KDNAS_CLAIM"
EXIT_FAILED, EXIT_WRONG_REQUEST, EXIT_LEFT_ALONE = 1, 2, 75
PREPARING_SECONDS = 1.0
"""So often at most an event says how far preparation is."""

log = structlog.get_logger("kdnas.runner")


class Drain:
    """Whether the coordinator wants this process to end in good order."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the coordinator's to pass on

    def __call__(self) -> bool:
        """Say whether to stop; given to the work as its ``should_stop``."""
        return self._asked.is_set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()


class Preparing:
    """Events about corpus, masked-LM head and latency table, about one a second, and warnings."""

    def __init__(
        self, database: Database, kind: Literal["search", "distillation"], row_id: str
    ) -> None:
        self._database, self._type = database, f"{kind}_preparing"
        self._warning = f"{kind}_warning"
        self._subject = {f"{kind}_id": row_id}
        self._told, self._text = 0.0, ""

    def __call__(self, text: str, share: float | None) -> None:
        """Tell how far something is; the first word on it always, then about one a second."""
        what, now = text.split(":")[0], time.monotonic()
        if what == self._text and now - self._told < PREPARING_SECONDS:
            return
        self._text, self._told = what, now
        payload = {"text": text, "share": None if share is None else round(share, 3)}
        with self._database.write() as session:
            append_event(session, self._type, payload, **self._subject)
        log.info("preparing", **payload)

    def on_warning(self, text: str) -> None:
        """Tell what the user should know; what was told before a restart is not told again."""
        log.warning(text)
        payload = {"text": text}
        with self._database.write() as session:
            if payload not in payloads_of(session, self._warning, **self._subject):
                append_event(session, self._warning, payload, **self._subject)

    def on_corpus(self, progress: CorpusProgress) -> None:
        """Tell of the corpus; one that was there already is not worth an event."""
        if progress.stage == "tokenizing":
            total = progress.bytes_total
            share = progress.bytes_read / total if total else None
            self(f"tokenising the corpus: {progress.num_samples} sequences", share)

    def on_objective(self, what: str, done: int, total: int) -> None:
        """Tell of heads that are fitted and layers that are tried."""
        self(f"{what}: step {done} of {total}", done / total if total else None)

    def on_latency(self, share: float, text: str) -> None:
        """Tell of the latency table."""
        self(f"latency table: {text}", share)


def run(kind: Kind, row_id: str, token: str, settings: Settings, drain: Callable[[], bool]) -> int:
    """Do one piece of work; the exit code says how it ended."""
    structlog.contextvars.bind_contextvars(**{kind: row_id})
    settings = settings.for_service()
    try:
        with open_database(settings) as database:
            try:
                ended = _WORK[kind](row_id, token, database, settings, drain)
            except NotNowError as error:
                what = "room" if isinstance(error, NoRoomError) else "the cluster"
                log.info("left for later", waiting_for=what, reason=str(error))
                _tell_of_waiting(kind, row_id, database, f"waiting for {what}", str(error))
                return EXIT_LEFT_ALONE
        log.info("ended", status=ended)
    except CancelledError as error:
        log.info("cancelled", reason=str(error))
    except DatabaseError as error:
        log.error("left alone", reason=str(error))
        return EXIT_LEFT_ALONE
    except RequestError as error:
        log.error("failed", reason=str(error))
        return EXIT_WRONG_REQUEST
    except Exception as error:  # the row says so in a sentence, the log where it happened
        log.exception("failed", reason=str(error))
        return EXIT_FAILED
    return 0


def _tell_of_waiting(kind: Kind, row_id: str, database: Database, text: str, reason: str) -> None:
    """Write an event about work that goes back to be tried again later, where its kind has any."""
    if kind == "evaluation":
        with database.write() as session:
            note_evaluation_progress(session, row_id, text, 0, 1, None)
    elif kind != "latency":
        Preparing(database, kind, row_id)(f"{text}: {reason}", None)


def _search(
    row_id: str, token: str, database: Database, settings: Settings, drain: Callable[[], bool]
) -> str:
    from api.searches.run import Watchers, run_stored_search

    preparing = Preparing(database, "search", row_id)
    return run_stored_search(
        row_id,
        database,
        settings,
        Watchers(
            preparing.on_latency,
            _log_search,
            preparing.on_corpus,
            preparing.on_objective,
            preparing.on_warning,
            waiting=lambda text: preparing.on_latency(0.0, text),
        ),
        drain,
        claim=token,
        stopped_status="running",
    )


def _log_search(event: Progress) -> None:
    from kdnas.search.progress import EpisodeDone, EpisodeStarted

    if isinstance(event, EpisodeStarted):
        log.info("episode started", episode=event.number, candidates=len(event.candidates))
    elif isinstance(event, EpisodeDone):
        best = event.best
        log.info(
            "episode finished",
            episode=event.number,
            trained=event.num_trained,
            best=None if best is None else str(best.architecture),
            reward=None if best is None else best.reward,
        )


def _distillation(
    row_id: str, token: str, database: Database, settings: Settings, drain: Callable[[], bool]
) -> str:
    from api.distillations.run import run_stored_distillation

    preparing = Preparing(database, "distillation", row_id)
    outcome = run_stored_distillation(
        row_id,
        database,
        settings,
        should_stop=drain,
        on_corpus=preparing.on_corpus,
        on_preparing=preparing.on_objective,
        on_warning=preparing.on_warning,
        claim=token,
        stopped_status="running",
    )
    return outcome.record.status


def _latency(
    row_id: str, token: str, database: Database, settings: Settings, drain: Callable[[], bool]
) -> str:
    from api.latency_tables.run import run_stored_build

    return run_stored_build(row_id, token, database, settings, drain)


def _evaluation(
    row_id: str, token: str, database: Database, settings: Settings, drain: Callable[[], bool]
) -> str:
    from api.evaluations.service import run_stored_evaluation

    return run_stored_evaluation(row_id, token, database, settings, drain)


_WORK: Final = {
    "search": _search,
    "distillation": _distillation,
    "evaluation": _evaluation,
    "latency": _latency,
}


def end_with_parent() -> None:
    """Have this process end at once when its stdin closes."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(EXIT_LEFT_ALONE)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> None:
    """Run what the command line names."""
    if len(sys.argv) != 3 or sys.argv[1] not in get_args(Kind) or TOKEN_VARIABLE not in os.environ:
        sys.exit(f"usage: {TOKEN_VARIABLE}=TOKEN python -m api.jobs.runner {'|'.join(_WORK)} ID")
    kind: Kind = sys.argv[1]  # type: ignore[assignment]
    end_with_parent()
    drain = Drain()
    from api.jobs.log_format import configure_logs

    configure_logs()
    token = os.environ.pop(TOKEN_VARIABLE)
    code = run(kind, sys.argv[2], token, Settings.from_environment(), drain)
    logging.shutdown()
    os._exit(code)  # tearing down torch takes seconds, and there is nothing left to save


if __name__ == "__main__":
    main()

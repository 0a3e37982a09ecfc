"""Ctrl-C and SIGTERM: the first asks work to come to a good end, the second ends it at once.

Whoever trains students lets those at work come to their end after a Ctrl-C. SIGTERM, after which
SIGKILL may follow soon, does not wait for them.

Work that has begun waits for a database that does not answer; either of them ends that.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from kdnas.cli.screens.console import say
from kdnas.errors import DatabaseAwayError, WorkError
from kdnas.settings import Settings

if TYPE_CHECKING:
    from kdnas.db.engine import Database
    from kdnas.records import SearchStatus


def exit_unless_done(status: SearchStatus) -> None:
    """End the process as its work ended; somebody may have stopped that from elsewhere.

    Raises:
        typer.Exit: 1 if the work was cancelled, 130 if it rests.
    """
    if status == "cancelled":
        say("cancelled; what had succeeded is kept")
        raise typer.Exit(1)
    if status != "succeeded":
        raise typer.Exit(130)


class Interrupt:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.num_asked = 0
        self._by_signal = 0

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self.num_asked > 0

    def __call__(self) -> bool:
        """Say whether to stop; given to the work as its ``should_stop``."""
        return self.requested

    def at_once(self) -> bool:
        """Say whether to stop without waiting for trainings; given to the work as ``at_once``."""
        return self._by_signal == signal.SIGTERM

    def ask(self, number: int) -> None:
        """Ask to stop, as a signal does."""
        self.num_asked, self._by_signal = self.num_asked + 1, number


@contextmanager
def interruptible(
    what: str,
    stored: tuple[Database, Settings],
    way_on: str | None = None,
    hopeless: tuple[type[Exception], ...] = (),
    *,
    trains_students: bool = False,
) -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM for the time of a ``with`` block.

    Args:
        what: is saved, such as "the search", for the message.
        stored: where, and the settings that say how long it waits for that.
        way_on: command that goes on with it, to be told where it fails or is stopped at once.
        hopeless: failures that would come again, so that nothing is told.
        trains_students: whether it lets those come to their end that are being trained.
    """
    interrupt = Interrupt()

    def ask(number: int, frame: FrameType | None) -> None:
        interrupt.ask(number)
        if interrupt.num_asked > 1:
            raise KeyboardInterrupt
        if trains_students and not interrupt.at_once():
            say(
                f"stopping {what} in good order: students that are being trained come to their end "
                "first; press Ctrl-C again to stop at once, which loses their training"
            )
        else:
            say(f"stopping {what} in good order; press Ctrl-C again to stop at once")

    database, settings = stored
    seconds = settings.database_patience_seconds
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with database.patient(seconds, say, lambda: interrupt.num_asked):
            yield interrupt
    except (WorkError, KeyboardInterrupt) as stop:
        if way_on is not None and not isinstance(stop, hopeless):
            say(f"stopped; go on with: {way_on}")
        elif isinstance(stop, DatabaseAwayError):
            say("stopped; go on with the same command")
        if interrupt.requested and isinstance(stop, DatabaseAwayError):
            raise KeyboardInterrupt from stop  # nobody waits for it any more
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Ctrl-C and SIGTERM: the first asks work to come to a good end, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kdnas.cli.screens.console import say
from kdnas.errors import WorkError


class Interrupt:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        """Say whether to stop; given to the work as its ``should_stop``."""
        return self.requested


@contextmanager
def interruptible(
    what: str, way_on: str | None = None, hopeless: tuple[type[Exception], ...] = ()
) -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM for the time of a ``with`` block.

    Args:
        what: is saved, such as "the search", for the message.
        way_on: command that goes on with it, to be told where it fails or is stopped at once.
        hopeless: failures that would come again, so that nothing is told.
    """
    interrupt = Interrupt()

    def ask(number: int, frame: FrameType | None) -> None:
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True
        say(f"stopping {what} in good order; press Ctrl-C again to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    except (WorkError, KeyboardInterrupt) as stop:
        if way_on is not None and not isinstance(stop, hopeless):
            say(f"stopped; go on with: {way_on}")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

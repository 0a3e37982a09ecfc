"""Waiting for a database that does not answer: said once, tried again, for a bounded time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kdnas.errors import DatabaseAwayError

SHORTEST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 10.0
"""Pauses between two tries: half of the time that has passed, within these."""
LOOK_SECONDS: Final = 0.1
"""So often a wait looks whether it is to end."""


@dataclass(frozen=True)
class _Outage:
    """A time in which the database does not answer.

    Attributes:
        since: when that was noticed (monotonic clock).
        num_asked: how often somebody had asked this process to stop by then.
        of_writes: whether that is so of writes alone, as on SQLite, where others may keep writers
            out while one can read.
        error: how it failed first.
    """

    since: float
    num_asked: int
    of_writes: bool
    error: DatabaseAwayError


class Patience:
    """How long a process waits for its database, and what it says of that. Safe between threads.

    Args:
        seconds: of one outage, from when it is noticed.
        say: tells the person who runs this process.
        num_asked: how often somebody has asked this process to stop; who does so while it waits
            ends the wait.
    """

    def __init__(
        self, seconds: float, say: Callable[[str], None], num_asked: Callable[[], int]
    ) -> None:
        self._seconds, self._say, self._num_asked = seconds, say, num_asked
        self._lock = threading.Lock()
        self._outage: _Outage | None = None
        self._noted: DatabaseAwayError | None = None
        self._back = -math.inf

    @property
    def has_outage(self) -> bool:
        """Whether the database does not answer at present."""
        return self._outage is not None

    def note_failure(self, error: DatabaseAwayError, of_writes: bool, began: float) -> None:
        """Take note that the database did not answer; the first time of an outage is told.

        An error that was noted before is no news: the database may have answered since. So is the
        end of a transaction that an outage has cut off which is over by now.

        Args:
            error: what it answered.
            of_writes: whether others may well read.
            began: when the transaction did (monotonic clock).
        """
        with self._lock:
            is_new, self._noted = error is not self._noted and began > self._back, error
            if self._outage is None and is_new:
                self._outage = _Outage(time.monotonic(), self._num_asked(), of_writes, error)
                self._say(
                    f"the database is out of reach ({error.reason}); waiting, since "
                    f"{datetime.now().astimezone():%H:%M:%S}; Ctrl-C ends"
                )

    def note_answer(self, of_writes: bool) -> None:
        """Take note that the database has answered, which ends an outage."""
        with self._lock:
            outage = self._outage
            if outage is not None and (of_writes or not outage.of_writes):
                self._outage, self._back = None, time.monotonic()
                passed = self._back - outage.since
                self._say(f"the database is back after {passed:.0f} s; going on")

    def wait(self) -> bool:
        """Wait before the next try; False if there is to be none."""
        outage = self._outage
        if outage is None:  # another thread has got through meanwhile
            return True
        began = time.monotonic()
        end = outage.since + self._seconds
        pause = min(max((began - outage.since) / 2, SHORTEST_SECONDS), LONGEST_SECONDS)
        while (now := time.monotonic()) < began + pause:
            if now >= end or self._num_asked() > outage.num_asked:
                return False
            if self._outage is not outage:
                return True
            time.sleep(LOOK_SECONDS)
        return time.monotonic() < end

    def over(self, error: DatabaseAwayError) -> DatabaseAwayError:
        """Word the end of a wait in vain."""
        outage = self._outage
        if outage is None or time.monotonic() < outage.since + self._seconds:
            return error  # somebody has ended it
        return DatabaseAwayError(
            f"{outage.error.reason}, for {self._seconds:g} s by now "
            "(KDNAS_DATABASE_PATIENCE_SECONDS)",
            outage.error.advice,
        )

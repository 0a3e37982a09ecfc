"""Rows that could not be worked on at present, and how long each is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


class Pauses:
    """A pause after each attempt that came to nothing: 1, 2, 4 … at most 60 seconds.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, tuple[float, float]] = {}

    def lengthen(self, row_id: str) -> float:
        """Leave a row alone for twice as long as the last time, and say for how many seconds."""
        _, last = self._until.get(row_id, (0.0, FIRST_SECONDS / 2))
        seconds = min(2 * last, LONGEST_SECONDS)
        self._until[row_id] = (self._clock() + seconds, seconds)
        return seconds

    def forget(self, row_id: str) -> None:
        """Begin with a short pause again: something came of it, or nobody wants it any more."""
        self._until.pop(row_id, None)

    def resting(self) -> frozenset[str]:
        """Ids of the rows that are to be left alone now."""
        now = self._clock()
        return frozenset(row_id for row_id, (until, _) in self._until.items() if until > now)

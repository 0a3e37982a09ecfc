"""Which students are being trained at present, how far they are, and how long they take yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
)

MINUTE, HOUR = 60.0, 3600.0


@dataclass
class _Pace:
    """How far a group is, and since when it has been heard of."""

    first_step: int
    first_at: float
    step: int
    total: int
    at: float

    @property
    def seconds_left(self) -> float | None:
        """From its pace so far; None where that says nothing yet."""
        made = self.step - self.first_step
        return (self.at - self.first_at) / made * (self.total - self.step) if made else None


class StudentsAtWork:
    """Follows what a backend tells; may be read by another thread meanwhile.

    Args:
        clock: seconds.

    Attributes:
        begun: students whose attempt has begun and not ended, be it that they wait for a worker.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.begun: set[str] = set()
        self._clock = clock
        self._groups: dict[tuple[str, ...], _Pace] = {}

    def note(self, event: BackendEvent) -> None:
        """Take note of what happened."""
        if isinstance(event, AttemptStarted):
            self.begun.update(event.candidate_ids)
        elif isinstance(event, GroupProgress):
            if event.step:  # before its first step nothing of a training is lost
                self._hear(event)
        elif isinstance(event, AttemptInterrupted):
            self.end(*event.candidate_ids)
        elif isinstance(event, CandidateFinished):
            self.end(event.result.candidate_id)

    def _hear(self, event: GroupProgress) -> None:
        now, step = self._clock(), event.step
        pace = self._groups.setdefault(
            event.candidate_ids, _Pace(step, now, step, event.total_steps, now)
        )
        pace.step, pace.at = step, now

    def end(self, *candidate_ids: str) -> None:
        """Take note that the training of students is over."""
        self.begun.difference_update(candidate_ids)
        self._groups = {ids: pace for ids, pace in self._groups.items() if self._left(ids)}

    def _left(self, ids: tuple[str, ...]) -> int:
        return len(self.begun.copy().intersection(ids))

    @property
    def num_training(self) -> int:
        """Students that have made a step and whose training is not over."""
        return sum(map(self._left, [*self._groups]))

    @property
    def seconds_left(self) -> float | None:
        """Until the last of those is through; None where their pace says nothing yet."""
        left = [pace.seconds_left for pace in [*self._groups.values()]]
        known = [seconds for seconds in left if seconds is not None]
        return max(known) if known and len(known) == len(left) else None

    def __str__(self) -> str:
        """Say how many there are, how far the last of them is, and for about how long yet."""
        number = self.num_training
        students = f"{number} student{'' if number == 1 else 's'}"
        paces = [*self._groups.values()]
        if not paces:
            return students
        last = min(paces, key=lambda pace: pace.step - pace.total)
        left = self.seconds_left
        yet = "" if left is None else f", {_about(left)} left"
        return f"{students} at step {last.step} of {last.total}{yet}"


def _about(seconds: float) -> str:
    for length, word in ((HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= 1.5 * length or (word == "minute" and seconds >= length):
            number = round(seconds / length)
            return f"about {number} {word}{'' if number == 1 else 's'}"
    return "less than a minute"

"""Between the driver and the first worker of a group.

The line is a process as well. It loads no torch, which would take it seconds: it is a module of its
own, and passes on what it is told as bytes.
"""

from __future__ import annotations

import pickle
import time
from contextlib import suppress
from typing import Any, Self

import ray
from ray.exceptions import RayError

POLL_SECONDS = 0.2


class Line:
    """Progress one way, the wish to stop the other."""

    def __init__(self) -> None:
        self._told: list[bytes] = []
        self._stopping = False

    def tell(self, progress: bytes) -> None:
        """Keep what the worker tells."""
        self._told.append(progress)

    def take(self) -> list[bytes]:
        """Hand over what was told since the last time."""
        told, self._told = self._told, []
        return told

    def stop(self) -> None:
        """Ask the worker to stop."""
        self._stopping = True

    def stopping(self) -> bool:
        """Whether the worker is to stop."""
        return self._stopping


LINE: Any = ray.remote(num_cpus=0, max_restarts=0)(Line)


class WorkerEnd:
    """The first worker's end of the line; nothing here waits for an answer during a step."""

    def __init__(self, line: Any) -> None:
        self._line, self._stopping = line, False
        self._asked = time.monotonic()
        self._answer = line.stopping.remote()
        self._told: Any = None

    def tell(self, progress: object) -> None:
        """Send how far training is; whatever is pickled."""
        self._told = self._line.tell.remote(pickle.dumps(progress))

    def should_stop(self) -> bool:
        """Whether the driver wants an end, as of a moment ago.

        Raises:
            RayActorError: the driver is gone.
        """
        now = time.monotonic()
        if now - self._asked >= POLL_SECONDS and ray.wait([self._answer], timeout=0)[0]:
            self._stopping = ray.get(self._answer)
            self._asked, self._answer = now, self._line.stopping.remote()
        return self._stopping

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until everything was told."""
        if self._told is not None:
            with suppress(RayError):  # nobody is left who wants to know
                ray.get(self._told)

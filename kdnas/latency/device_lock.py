"""Measuring never shares the machine with training: an advisory lock of the whole machine.

Trainings hold the lock together, a measurement holds it alone. A second lock is the gate in front
of it: a measurement that waits stands in the gate, so that new trainings queue up behind it
instead of keeping it out for ever. The kernel frees both when a process ends, however it ends.

A process that holds the training lock must not ask for the measuring lock: it would wait for
itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kdnas.errors import LatencyError
from kdnas.settings import Settings

POLL_SECONDS = 0.1


def lock_folder() -> Path:
    """Folder of the lock files (``KDNAS_LOCKS``)."""
    return Settings.from_environment().locks


@contextmanager
def training_lock(
    wait_seconds: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the machine for training, together with any other trainings.

    Args:
        wait_seconds: longest time to wait for a measurement to end; None waits for ever.
        on_wait: is told once, in a sentence, if there is something to wait for.
        check: asked at every look; what it raises ends the wait.

    Raises:
        LatencyError: a measurement still runs after ``wait_seconds``, or the lock file cannot be
            opened.
    """
    waiting = _Waiting("a latency measurement", wait_seconds, on_wait, check)
    with _locked("machine", fcntl.LOCK_SH, waiting, gate=fcntl.LOCK_SH):
        yield


@contextmanager
def measuring_lock(
    wait_seconds: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the machine alone, to measure; new trainings wait from the moment this is asked for.

    Args:
        wait_seconds: longest time to wait for trainings to end; None waits for ever.
        on_wait: is told once, in a sentence, if there is something to wait for.
        check: asked at every look; what it raises ends the wait.

    Raises:
        LatencyError: the machine is still taken after ``wait_seconds``, or the lock file cannot
            be opened.
    """
    waiting = _Waiting("trainings or another measurement", wait_seconds, on_wait, check)
    with _locked("machine", fcntl.LOCK_EX, waiting, gate=fcntl.LOCK_EX):
        yield


class _Waiting:
    def __init__(
        self,
        what: str,
        seconds: float | None,
        on_wait: Callable[[str], None] | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._what, self._check = what, check
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._on_wait = on_wait

    def pause(self) -> None:
        self._check()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise LatencyError(
                f"this machine is still taken by {self._what} after {self._seconds:g} s; wait for "
                "it to end, or pause the search that runs here"
            )
        if self._on_wait is not None:
            self._on_wait(f"waiting for {self._what} on this machine to end")
            self._on_wait = None
        time.sleep(POLL_SECONDS)


@contextmanager
def _locked(name: str, mode: int, waiting: _Waiting, gate: int | None = None) -> Iterator[None]:
    descriptor = _open(name)
    try:
        if gate is None:
            _take(descriptor, mode, waiting)
        else:
            with _locked("gate", gate, waiting):
                _take(descriptor, mode, waiting)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, mode: int, waiting: _Waiting) -> None:
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting.pause()
        else:
            return


def _open(name: str) -> int:
    path = lock_folder() / f"{name}.lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LatencyError(
            f"the lock file {path} cannot be opened ({error.strerror}); make the folder "
            f"{path.parent} writable"
        ) from error

"""Measuring never shares the machine with training: an advisory lock of the whole machine.

Trainings hold the lock together, a measurement holds it alone. A second lock is the gate in front
of it: a measurement that waits stands in the gate, so that new trainings queue up behind it
instead of keeping it out for ever. The kernel frees both when a process ends, however it ends.

A process that holds the training lock must not ask for the measuring lock: it would wait for
itself.

Who holds the machine, or waits to measure on it, leaves a note beside the locks, so that others can
say for whom they wait and since when. Notes decide nothing. Each is locked by whoever wrote it, so
that those of processes that have ended are known, also of another container, overlooked, and swept
away.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from kdnas.errors import LatencyError
from kdnas.settings import Settings

POLL_SECONDS = 0.1
TRAINING, MEASURING = "training", "measuring"
NOTES = "holders"
"""Folder of the notes, beside the locks."""
MOST_SHOWN = 3


class StillTakenError(LatencyError):
    """The machine is still taken after as long as one wanted to wait."""


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
        on_wait: is told in a sentence for whom this waits, if it does; again when that changes.
        check: asked at every look; what it raises ends the wait.

    Raises:
        LatencyError: a measurement still runs after ``wait_seconds``, or the lock file cannot be
            opened.
    """
    waiting = _Waiting("a latency measurement", (MEASURING,), wait_seconds, on_wait, check)
    with _locked("machine", fcntl.LOCK_SH, waiting, gate=fcntl.LOCK_SH), _noted(TRAINING):
        yield


def training_turn(machine: ExitStack, patience: float = 1.0) -> Iterator[str]:
    """Take the machine for training, and come up for air while it is taken.

    Args:
        machine: holds the lock when this has ended, for as long as it is open.
        patience: seconds between two looks of the caller.

    Yields:
        For whom this waits, in a sentence, every so often.

    Raises:
        LatencyError: the lock file cannot be opened.
    """
    told: list[str] = []
    while True:
        try:
            machine.enter_context(training_lock(patience, told.append))
        except StillTakenError as error:
            yield told[-1] if told else str(error)
        else:
            return


def measured_by() -> str | None:
    """Say who measures on this machine, or waits to, so that trainings wait; None if nobody does.

    It is known by notes: where these cannot be written nobody is seen.
    """
    waiting = _Waiting("a latency measurement", (MEASURING,), None, None)
    return waiting.text if waiting.notes() else None


@contextmanager
def measuring_lock(
    wait_seconds: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the machine alone, to measure; new trainings wait from the moment this is asked for.

    Args:
        wait_seconds: longest time to wait for trainings to end; None waits for ever.
        on_wait: is told in a sentence for whom this waits, if it does; again when that changes.
        check: asked at every look; what it raises ends the wait.

    Raises:
        LatencyError: the machine is still taken after ``wait_seconds``, or the lock file cannot
            be opened.
    """
    what = "trainings or another measurement"
    # Noted before it has its turn: new trainings wait for it from now on.
    with _noted(MEASURING) as own:
        kinds = (TRAINING, MEASURING)
        waiting = _Waiting(what, kinds, wait_seconds, on_wait, check, own)
        with _locked("machine", fcntl.LOCK_EX, waiting, gate=fcntl.LOCK_EX):
            yield


class _Waiting:
    def __init__(
        self,
        what: str,
        kinds: Sequence[str],
        seconds: float | None,
        on_wait: Callable[[str], None] | None,
        check: Callable[[], None] = lambda: None,
        own: Path | None = None,
    ) -> None:
        self._what, self._check = what, check
        self._kinds, self._own, self._said = kinds, own, ""
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._on_wait = on_wait

    def pause(self) -> None:
        self._check()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise StillTakenError(
                f"this machine is still taken by {self._what} after {self._seconds:g} s"
                f"{self._who()}; wait for it to end, or pause the search that runs here"
            )
        if self._on_wait is not None and self.text != self._said:
            self._said = self.text
            self._on_wait(self._said)
        time.sleep(POLL_SECONDS)

    @property
    def text(self) -> str:
        """What is waited for, in a sentence."""
        return f"waiting for {self._what} on this machine to end{self._who()}"

    def notes(self) -> list[str]:
        """Who has noted what is waited for."""
        return _notes(self._kinds, self._own)

    def _who(self) -> str:
        """Whose notes there are of what is waited for."""
        notes = self.notes()
        shown = "; ".join(notes[:MOST_SHOWN])
        more = f"; {len(notes) - MOST_SHOWN} more" if len(notes) > MOST_SHOWN else ""
        return f": {shown}{more}" if notes else ""


@contextmanager
def _noted(kind: str) -> Iterator[Path]:
    """Leave a note of what this process does for the time of a ``with`` block."""
    path = lock_folder() / NOTES / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
    note = {"kind": kind, "who": _command(), "since": time.time()}
    draft = path.with_suffix(".draft")  # nobody sees it before it is whole and locked
    with ExitStack() as held:
        with suppress(OSError):  # without a note all goes on as well
            path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            stream = held.enter_context(draft.open("w", encoding="utf-8"))
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write(json.dumps(note))
            stream.flush()
            draft.rename(path)
        try:
            yield path
        finally:
            for left in (path, draft):
                with suppress(OSError):
                    left.unlink(missing_ok=True)


def _notes(kinds: Sequence[str], own: Path | None) -> list[str]:
    """What processes that are alive have noted, the oldest first."""
    found: dict[tuple[int, str], float] = {}
    for path in (lock_folder() / NOTES).glob("*.json"):
        try:
            pid = int(path.name.partition("-")[0])
            if not _is_held(path):
                path.unlink(missing_ok=True)
                continue
            note = json.loads(path.read_text("utf-8"))
            who, since, kind = str(note["who"]), float(note["since"]), note["kind"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written, or taken away meanwhile
        if path != own and kind in kinds:
            found[pid, who] = min(since, found.get((pid, who), since))
    return [
        f"{who} (process {pid}), since {datetime.fromtimestamp(since):%H:%M:%S}"
        for (pid, who), since in sorted(found.items(), key=lambda item: item[1])
    ]


def _is_held(note: Path) -> bool:
    """Whether who wrote it is alive: a process of another container has no number here."""
    with note.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _command() -> str:
    """What was typed to start this process, but for what may be long or private in it."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program == "kdnas":
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        return f"kdnas {command}".strip()
    if program in ("", "-c", "-m"):
        return "a program"
    return "a worker" if "worker" in program else program


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


def _refuse_anothers(folder: Path) -> None:
    """Refuse a folder that another user has made where anybody may: he could hold all locks.

    Raises:
        LatencyError: it is one.
    """
    above = folder.parent.stat().st_mode
    anybodys = above & stat.S_ISVTX and above & stat.S_IWOTH
    owner = folder.stat().st_uid
    if anybodys and owner not in {os.getuid(), 0}:
        raise LatencyError(
            f"the folder of the locks, {folder}, was made by another user ({owner}), who could "
            "hold up all work; set KDNAS_LOCKS to a folder of your own"
        )


def _open(name: str) -> int:
    path = lock_folder() / f"{name}.lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _refuse_anothers(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LatencyError(
            f"the lock file {path} cannot be opened ({error.strerror}); make the folder "
            f"{path.parent} writable"
        ) from error

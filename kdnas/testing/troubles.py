"""Bad days: what work stands on fails for a while, and what has to be true of the work then.

A trouble begins at a random moment while a work is done (:mod:`kdnas.testing.chaos`), by a command
or by the service, and ends some seconds later. Work that gave up has said why in one sentence and
goes on from where it was; given up or not, it comes to what it comes to undisturbed.
"""

from __future__ import annotations

import errno
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdnas.testing.chaos import LONGEST_SECONDS, Ground, Work
from kdnas.testing.webhdfs_server import StoreServer

LASTS_SECONDS = 6.0
_PIECE = bytes(16 * 1024)


class Trouble(Protocol):
    """Something that work stands on, and that can fail."""

    def begin(self) -> None:
        """Let it fail."""

    def end(self) -> None:
        """Let it work again."""


class FullDisk:
    """A small disk that something else fills, to the last byte and again when there is space.

    Args:
        folder: where it is mounted; only root may.
        mebibytes: its size.
    """

    def __init__(self, folder: Path, mebibytes: int = 256) -> None:
        self.folder, self._ballast = folder, folder / "of-somebody-else"
        size = f"size={mebibytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
        self._ended, self._is_full = threading.Event(), threading.Event()
        self._filling: threading.Thread | None = None

    def begin(self) -> None:
        """Fill it; returns when it is full."""
        self._ended.clear()
        self._is_full.clear()
        self._filling = threading.Thread(target=self._fill)
        self._filling.start()
        self._is_full.wait()

    def end(self) -> None:
        """Free it."""
        self._ended.set()
        if self._filling is not None:
            self._filling.join()
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            while not self._ended.is_set():
                try:
                    file.write(_PIECE)
                except OSError as error:
                    self._is_full.set()
                    if error.errno != errno.ENOSPC:
                        raise
                    self._ended.wait(0.01)


@dataclass
class StoreInTrouble:
    """A store that answers errors, or late."""

    server: StoreServer
    status: int | None = None
    seconds_late: float = 0.0

    def begin(self) -> None:
        """Let it answer so."""
        self.server.status, self.server.seconds_late = self.status, self.seconds_late

    def end(self) -> None:
        """Let it answer well, and at once."""
        self.server.status, self.server.seconds_late = None, 0.0


def suffer_by_command(ground: Ground, work: Work, trouble: Trouble) -> str:
    """Do a work by its command in trouble; returns what was said, empty if it came through.

    Raises:
        AssertionError: it ended in another way than by a sentence, or came to something else.
    """
    expected, seconds = ground.expected(work, True)
    name, said = ground.new_name(work), ""
    process = ground.program.fork(*ground.command(work, name), **ground.environment)
    time.sleep(ground.draw.uniform(0.0, seconds))
    with _during(trouble):
        deadline = time.monotonic() + LASTS_SECONDS
        while not process.has_ended and time.monotonic() < deadline:
            time.sleep(0.05)
    ended = process.wait(LONGEST_SECONDS)
    if ended.code != 0:
        assert ended.code == 1, f"exit {ended.code}: {ended.err[-1500:]}"
        assert "Traceback" not in ended.err, ended.err
        said = next((s for s in ended.err.splitlines() if s.startswith("error: ")), "")
        assert said, ended.err[-1500:]
        ended = ground.program.run(*ground.command(work, name), **ground.environment)
        assert ended.code == 0, f"when it was over: exit {ended.code}: {ended.err[-1500:]}"
    job_id = ground.find(work, name)
    assert job_id is not None
    found = ground.outcome(work, job_id)
    assert found == expected, f"came to {found}, and undisturbed to {expected}; said: {said}"
    return said


def suffer_by_service(
    ground: Ground,
    work: Work,
    trouble: Trouble,
    is_time: Callable[[str], bool] | None = None,
) -> str:
    """Do a work by the service in trouble; returns what was said, empty if it came through.

    Args:
        ground: where it is done.
        work: what is done.
        trouble: that it meets.
        is_time: says of its job whether the trouble is to begin; None begins at a random moment.

    Raises:
        AssertionError: the service ended, nothing was said, or it came to something else.
    """
    expected, seconds = ground.expected(work, False)
    with ground.service() as service:
        job_id = service.ask(work, ground.new_name(work))
        if is_time is None:
            time.sleep(ground.draw.uniform(0.0, seconds))
        else:
            deadline = time.monotonic() + LONGEST_SECONDS
            while not is_time(job_id):
                assert time.monotonic() < deadline, "the time for trouble does not come"
                time.sleep(0.01)
        with _during(trouble):
            time.sleep(LASTS_SECONDS)
        said = service.wait_until_over(job_id)
        if said:
            assert "Traceback" not in said, said
            service.resume(job_id)
            service.wait_for_end(job_id)
    found = ground.outcome(work, job_id)
    assert found == expected, f"came to {found}, and undisturbed to {expected}; said: {said}"
    return said


@contextmanager
def _during(trouble: Trouble) -> Iterator[None]:
    trouble.begin()
    try:
        yield
    finally:
        trouble.end()
